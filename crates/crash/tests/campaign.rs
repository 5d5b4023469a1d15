//! A campaign comes to the same however it is run, and what it names can be run again.

use persimmon_crash::filesystem::Filesystem;
use persimmon_crash::harness::{Campaign, CampaignReport, Case, Origin, Selection, replay};
use persimmon_crash::workload::Sequences;

fn campaign() -> Campaign {
    let selection = Selection {
        first: 100,
        end: 100_000,
        step: 701,
    };
    Campaign {
        sequences: vec![selection],
        samples: 40,
        ..Campaign::new(7, 400)
    }
}

fn run(campaign: &Campaign, from: CampaignReport) -> CampaignReport {
    let report = campaign.go_on(&Filesystem, from, |_| {});
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
    report
}

#[test]
fn any_number_of_threads_comes_to_the_same() {
    let one = run(&campaign(), CampaignReport::default());
    let mut threads = campaign();
    threads.jobs = 3;
    let three = run(&threads, CampaignReport::default());
    assert_eq!(one.parts, three.parts);
    assert_eq!(one.statistics, three.statistics);
    assert_eq!(
        one.statistics.sequences,
        campaign().sequences_planned(),
        "{}",
        one.statistics
    );
    assert!(one.statistics.images.len() > 100);
}

#[test]
fn a_campaign_goes_on_where_it_was_broken_off() {
    let whole = run(&campaign(), CampaignReport::default());
    let mut shorter = campaign();
    shorter.states = 100;
    let begun = run(&shorter, CampaignReport::default());
    assert!(begun.parts < whole.parts);
    let resumed = run(&campaign(), begun);
    assert_eq!(resumed.parts, whole.parts);
    assert_eq!(resumed.statistics, whole.statistics);
}

#[test]
fn a_name_runs_the_same_again() -> Result<(), Box<dyn std::error::Error>> {
    let sequences = Sequences::new();
    for name in ["seed:3", "seed:5003", "sequence:12345", "sample:5"] {
        let origin: Origin = name.parse()?;
        assert_eq!(origin.to_string(), name);
        let case = Case::new(origin, &sequences).ok_or("no such sequence")?;
        let first = replay(&Filesystem, &case)?;
        assert_eq!(first, replay(&Filesystem, &case)?);
        assert!(first.states > 0);
    }
    assert!("sequence".parse::<Origin>().is_err());
    Ok(())
}
