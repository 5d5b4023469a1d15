//! Files and functions of a readable length.

use super::Finding;
use super::source::Source;

const FILE_LINES_GOOD: usize = 400;
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_GOOD: usize = 70;
const FUNCTION_LINES_MAX: usize = 140;

pub fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    for source in sources {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            findings.push(Finding::error(
                &source.path,
                format!("{lines} lines, more than {FILE_LINES_MAX}: it has two subjects, split it"),
            ));
        } else if lines > FILE_LINES_GOOD {
            findings.push(Finding::warning(
                &source.path,
                format!("{lines} lines, more than {FILE_LINES_GOOD}"),
            ));
        }
        for function in source.functions() {
            let place = format!("{}:{}", source.path, function.line);
            let message = format!("function {} has {} lines", function.name, function.lines);
            if function.lines > FUNCTION_LINES_MAX {
                findings.push(Finding::error(
                    place,
                    format!("{message}, more than {FUNCTION_LINES_MAX}"),
                ));
            } else if function.lines > FUNCTION_LINES_GOOD {
                findings.push(Finding::warning(place, message));
            }
        }
    }
}
