//! `persimmon simulate`: its page is a file that needs no other, and says what the JSON says.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;

use crate::common::{Place, told};

const SMALL: [&str; 10] = [
    "--zones",
    "96",
    "--zone-size",
    "512K",
    "--fill",
    "0.5",
    "--warm-up",
    "0.5",
    "--volumes",
    "0.5",
];

/// Runs, and answers the JSON and the page.
fn simulate(arguments: &[&str]) -> (Value, String) {
    let place = Place::new();
    let mut words = vec!["simulate", "--json", "--html", "page.html"];
    words.extend(arguments);
    let output = place.run(&words);
    assert!(output.status.success(), "{}", told(&output));
    let page = std::fs::read_to_string(place.dir().join("page.html")).unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), page)
}

/// Reads the page as XML: each element is closed, each attribute quoted. Nothing leads out of it.
fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(page, options).unwrap();
    for word in ["http", "//", "url(", "@import", "<script", "javascript:"] {
        assert!(!page.contains(word), "the page has '{word}'");
    }
    for node in document.descendants() {
        for attribute in node.attributes() {
            let name = attribute.name();
            assert!(
                !["src", "href", "data", "onclick"].contains(&name),
                "{name}"
            );
        }
    }
    document
}

fn words(node: Node<'_, '_>) -> Vec<String> {
    node.descendants()
        .filter(|node| node.has_tag_name("td"))
        .map(|cell| cell.text().unwrap_or_default().to_owned())
        .collect()
}

fn headings(document: &Document<'_>) -> Vec<String> {
    let of_figure = |node: &Node<'_, '_>| node.has_tag_name("h3");
    let headings = document.descendants().filter(of_figure);
    headings.map(|h| h.text().unwrap().to_owned()).collect()
}

#[test]
fn the_page_has_the_figures_of_the_run() {
    let mut arguments = vec!["uniform"];
    arguments.extend(SMALL);
    let (json, page) = simulate(&arguments);
    let document = parse(&page);
    let cells = words(document.root());
    let figure = |value: &Value, decimals: usize| {
        let value = value.as_f64().unwrap();
        let text = format!("{value:.decimals$}");
        assert!(cells.contains(&text), "{text} is not in {cells:?}");
    };
    figure(&json["write_amplification"], 3);
    for kind in json["written"].as_object().unwrap().values() {
        figure(kind, 4);
    }
    let expected = [
        "Write amplification over time",
        "Bytes by kind",
        "Wear",
        "Bytes by kind over time",
        "Free zones",
        "Cleaning",
        "Zones of data by valid share",
        "Map of the zones",
    ];
    assert_eq!(headings(&document), expected);
    // Each plot is drawn, and each zone has its cell.
    let figures = document.descendants().filter(|n| n.has_tag_name("figure"));
    for figure in figures {
        let shapes = figure.descendants();
        let drawn = shapes.filter(|n| n.has_tag_name("path") || n.has_tag_name("rect"));
        assert!(drawn.count() > 8);
    }
    let classes = document.descendants().filter_map(|n| n.attribute("class"));
    assert_eq!(
        classes.filter(|class| class.starts_with("cell ")).count(),
        96
    );
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn several_runs_are_side_by_side_and_latencies_are_plotted() {
    let mut arguments = vec!["uniform", "zipf", "--rounds", "300"];
    arguments.extend(SMALL);
    let (json, page) = simulate(&arguments);
    let document = parse(&page);
    let cells = words(document.root());
    let runs = json.as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        for operation in ["reads", "writes", "syncs"] {
            let longest = run[operation]["longest"].as_f64().unwrap();
            assert!(cells.contains(&format!("{longest:.0}")), "{longest}");
        }
    }
    let headings = headings(&document);
    for heading in ["Reads", "Writes", "Syncs"] {
        assert!(headings.iter().any(|h| h == heading), "{headings:?}");
    }
    let sections: Vec<&str> = document
        .descendants()
        .filter(|n| n.has_tag_name("h2"))
        .filter_map(|n| n.descendants().filter_map(|text| text.text()).next_back())
        .collect();
    assert_eq!(sections.len(), 3, "{sections:?}");
    assert!(sections[1].starts_with("uniform") && sections[2].starts_with("zipf:0.99"));
}

#[test]
fn a_page_that_cannot_be_written_is_told_before_the_run() {
    let place = Place::new();
    place.refused(
        &["simulate", "uniform", "--html", "nowhere/page.html"],
        1,
        &["nowhere/page.html"],
    );
}

/// Not a number, infinity and less than nothing were taken for nothing, and rounds or clients of none measured none:
/// the figures were zeros.
#[test]
fn what_would_measure_nothing_is_refused() {
    let place = Place::new();
    for (option, value) in [
        ("--warm-up", "nan"),
        ("--warm-up", "inf"),
        ("--warm-up", "-1"),
        ("--volumes", "0"),
        ("--volumes", "nan"),
        ("--rounds", "0"),
        ("--clients", "0"),
        ("--fill", "1.5"),
        ("--fill", "0%"),
        ("--fill", "nan"),
    ] {
        let words = ["simulate", "uniform", "--zones", "96", option, value];
        place.refused(&words, 2, &[option, value]);
    }
    let (half, _) = simulate(&[&["uniform"], &SMALL[..]].concat());
    let mut percent = SMALL;
    percent[5] = "50%";
    let (same, _) = simulate(&[&["uniform"], &percent[..]].concat());
    assert_eq!(half, same);
}
