//! How the zones of two devices are numbered in the volume. Those for metadata come first, those for data follow; zones that a device
//! gets later follow all that there are. The label of each device says which numbers its zones have.

use std::ops::Range;
use std::path::Path;

use persimmon_format::device_label::{DeviceLabel, ZoneRun};

use super::Labels;
use crate::joined::{Owner, Span, two_spans};
use crate::label::LABEL_ZONES;
use crate::lock::open_error;
use crate::{DeviceError, Result};

/// See the module.
pub(super) struct Numbering {
    /// All zones, in order.
    pub(super) spans: Vec<Span>,
    pub(super) zone_count: u32,
}

impl Numbering {
    /// Of a volume whose devices have not grown.
    ///
    /// Errors: too many zones together.
    pub(super) fn as_made(metadata: u32, data: u32) -> Result<Numbering> {
        let Some(zone_count) = metadata.checked_add(data) else {
            return Err(DeviceError::Open {
                path: "the two devices".to_owned(),
                message: "they have too many zones together".to_owned(),
                os_error: None,
            });
        };
        Ok(Numbering {
            spans: two_spans(metadata, zone_count),
            zone_count,
        })
    }

    /// Those for metadata, in order.
    pub(super) fn metadata_zones(&self) -> impl Iterator<Item = Range<u32>> {
        let spans = self.spans.iter();
        spans
            .filter(|span| span.owner == Owner::First)
            .map(|span| span.zones.clone())
    }
}

impl Labels {
    /// As the labels say.
    ///
    /// Errors: they leave numbers out, or both have some.
    pub(super) fn numbering(&self, path: &Path) -> Result<Numbering> {
        let metadata = spans(Owner::First, &self.metadata.runs());
        let mut all = spans(Owner::Second, &self.data.runs());
        all.extend(metadata);
        all.sort_by_key(|span| span.zones.start);
        let mut spans: Vec<Span> = Vec::new();
        for span in all {
            let end = spans.last().map_or(0, |last| last.zones.end);
            if span.zones.start != end {
                let missing = end..span.zones.start;
                if !is_of_label(&missing, &self.data) {
                    return Err(open_error(
                        path,
                        "the labels of the two devices of the volume contradict each other: one device is an older copy; \
                         restore it as the other was left",
                    ));
                }
                spans.push(Span {
                    owner: Owner::Nobody,
                    within: missing.start,
                    zones: missing,
                });
            }
            spans.push(span);
        }
        let zone_count = spans.last().map_or(0, |last| last.zones.end);
        Ok(Numbering { spans, zone_count })
    }

    /// The number that the next new zone gets.
    pub(super) fn next(&self) -> u32 {
        let runs = [self.metadata.runs(), self.data.runs()].concat();
        runs.iter().map(ZoneRun::end).max().unwrap_or(0)
    }
}

/// Where a volume of one device had its last two zones, when it got another one for metadata, the label of the first one is.
fn is_of_label(missing: &Range<u32>, data: &DeviceLabel) -> bool {
    let first = data.runs().first().copied();
    missing.len() == LABEL_ZONES as usize
        && first.is_some_and(|first| first.first == 0 && first.end() == missing.start)
}

fn spans(owner: Owner, runs: &[ZoneRun]) -> Vec<Span> {
    let mut within = 0;
    let span = |run: &ZoneRun| {
        let span = Span {
            owner,
            zones: run.first..run.end(),
            within,
        };
        within += run.count;
        span
    };
    runs.iter().map(span).collect()
}
