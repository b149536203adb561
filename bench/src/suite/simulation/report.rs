//! The report: `docs/routing.md` and its pictures.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;

use super::{
    plots,
    results::{AmazonRow, Comparison, Grid, LENGTHS, Results, THRESHOLDS},
};
use crate::{
    report::{Table, number},
    simulator::outcome::Summary,
};

/// What stands around the figures.
const FRAME: &str = include_str!("frame.md");

/// Writes the report to `directory`: `routing.md`, and pictures in `routing/`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(results: &Results, directory: &Path) -> anyhow::Result<()> {
    let pictures = directory.join("routing");
    fs::create_dir_all(&pictures).with_context(|| pictures.display().to_string())?;
    for comparison in &results.comparisons {
        plots::comparison(comparison, &pictures.join(picture_of(comparison)))?;
    }
    for grid in &results.grids {
        plots::grid(grid, &pictures.join(format!("grid-{}.svg", slug(&grid.workload))))?;
    }
    for change in kinds_of_change(results) {
        let rows: Vec<_> = results.changes.iter().filter(|row| row.change == change).collect();
        plots::change(&rows, &pictures.join(format!("{}.svg", slug(change))))?;
    }
    let file = directory.join("routing.md");
    fs::write(&file, text(results)).with_context(|| file.display().to_string())
}

/// The report's text.
pub fn text(results: &Results) -> String {
    FRAME
        .replace("{{headline}}", &headline(results))
        .replace("{{goals}}", &goals(results))
        .replace("{{comparisons}}", &comparisons(results))
        .replace("{{amazon}}", &amazon(&results.amazon))
        .replace("{{grids}}", &grids(&results.grids))
        .replace("{{changes}}", &changes(results))
}

fn slug(name: &str) -> String {
    let plain = name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn picture_of(comparison: &Comparison) -> String {
    format!("{}-{}.svg", slug(&comparison.workload), comparison.load)
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A change from one figure to another, with its sign.
fn change(from: f64, to: f64) -> String {
    format!("{:+.1}%", (to / from - 1.0) * 100.0)
}

fn shares(summary: &Summary) -> String {
    let least = summary.shares.iter().copied().fold(1.0, f64::min);
    let most = summary.shares.iter().copied().fold(0.0, f64::max);
    format!("{:.1}–{:.1}%", least * 100.0, most * 100.0)
}

/// The comparison of some work under some load.
fn find<'a>(results: &'a Results, workload: &str, load: &str) -> Option<&'a Comparison> {
    results.comparisons.iter().find(|it| it.workload.starts_with(workload) && it.load == load)
}

fn rule<'a>(comparison: &'a Comparison, name: &str) -> Option<&'a Summary> {
    comparison.rules.iter().find(|rule| rule.policy == name)
}

/// The gateway's rule that is held against the goals.
const OURS: &str = "opening 4096/64";

fn headline(results: &Results) -> String {
    let mut lines = format!(
        "RANDOM → `{OURS}` (below), near the load that the fleet can take without affinity:\n\n"
    );
    for workload in ["long context, uniform", "ShareGPT", "agents"] {
        let Some(comparison) = find(results, workload, "much") else { continue };
        let Some((random, best)) = rule(comparison, "RANDOM").zip(rule(comparison, OURS)) else {
            continue;
        };
        let _ = writeln!(
            lines,
            "- {workload}: hit rate {} → {} (one cache without end would have {}), P50 of the time to first \
             token {}, P90 {}.",
            percent(random.hit_rate),
            percent(best.hit_rate),
            percent(comparison.bound),
            change(random.first_token_ms.p50, best.first_token_ms.p50),
            change(random.first_token_ms.p90, best.first_token_ms.p90),
        );
    }
    lines
}

/// What is wanted, what came of it, and what is possible.
fn goals(results: &Results) -> String {
    let head = ["", "wanted", "here", "oracle", "verdict"];
    let mut table = Table::new("", head);
    for (workload, hit, p50, p90) in
        [("long context, uniform", 0.90, -0.77, -0.37), ("ShareGPT", 0.85, -0.16, -0.37)]
    {
        let Some(comparison) = find(results, workload, "much") else { continue };
        let (Some(random), Some(best), Some(oracle)) =
            (rule(comparison, "RANDOM"), rule(comparison, OURS), rule(comparison, "oracle"))
        else {
            continue;
        };
        let verdict = |met: bool| if met { "met" } else { "missed" }.to_owned();
        table.row([
            format!("{workload}: hit rate"),
            format!("≥ {}", percent(hit)),
            percent(best.hit_rate),
            format!("{} (bound {})", percent(oracle.hit_rate), percent(comparison.bound)),
            verdict(best.hit_rate >= hit),
        ]);
        for (name, wanted) in [("P50", p50), ("P90", p90)] {
            let figure = |of: &Summary| match name {
                "P50" => of.first_token_ms.p50,
                _ => of.first_token_ms.p90,
            };
            let gain = |of: &Summary| figure(of) / figure(random) - 1.0;
            table.row([
                format!("{workload}: {name} of the first token"),
                format!("≤ {}", percent(wanted)),
                percent(gain(best)),
                percent(gain(oracle)),
                verdict(gain(best) <= wanted),
            ]);
        }
        let least = best.shares.iter().copied().fold(1.0, f64::min);
        let most = best.shares.iter().copied().fold(0.0, f64::max);
        table.row([
            format!("{workload}: requests of each host"),
            "13.3–15.4%".into(),
            shares(best),
            shares(oracle),
            verdict(least >= 0.133 && most <= 0.154),
        ]);
    }
    for (workload, wanted) in [("long context, uniform", 0.16), ("ShareGPT", 0.02)] {
        let rows = results.amazon.iter().filter(|row| row.workload.starts_with(workload));
        let gain = |row: &AmazonRow| {
            row.prefix_aware.requests_per_second / row.random.requests_per_second - 1.0
        };
        let least = rows.map(gain).fold(f64::INFINITY, f64::min);
        table.row([
            format!("{workload}: throughput, the least in Amazon's table below"),
            format!("≥ {}", percent(wanted)),
            percent(least),
            String::new(),
            if least >= wanted { "met" } else { "missed" }.into(),
        ]);
    }
    for comparison in &results.comparisons {
        let least = rule(comparison, "LEAST_OUTSTANDING_REQUESTS");
        let Some((least, best)) = least.zip(rule(comparison, OURS)) else { continue };
        let ratio = best.first_token_ms.p99 / least.first_token_ms.p99;
        table.row([
            format!(
                "{}, {}: P99 against LEAST_OUTSTANDING_REQUESTS",
                comparison.workload, comparison.load
            ),
            "≤ 1.05".into(),
            format!("{ratio:.2}"),
            String::new(),
            if ratio <= 1.05 { "met" } else { "missed" }.into(),
        ]);
    }
    table.to_string()
}

fn comparisons(results: &Results) -> String {
    let mut text = String::new();
    for comparison in &results.comparisons {
        let title = format!(
            "{}, {} load ({} sessions a second)",
            comparison.workload,
            comparison.load,
            number(comparison.per_second)
        );
        let head =
            ["", "hit rate", "P50 ms", "P90 ms", "P99 ms", "requests/s", "overflow", "each host"];
        let mut table = Table::new(title, head);
        for rule in &comparison.rules {
            table.row([
                rule.policy.clone(),
                percent(rule.hit_rate),
                number(rule.first_token_ms.p50),
                number(rule.first_token_ms.p90),
                number(rule.first_token_ms.p99),
                number(rule.requests_per_second),
                percent(rule.overflow),
                shares(rule),
            ]);
        }
        let _ = writeln!(text, "{table}");
        let _ = writeln!(
            text,
            "One cache without end for all requests would have {}. Failures: {}.\n",
            percent(comparison.bound),
            comparison.rules.iter().map(|rule| rule.failures).sum::<u64>()
        );
        let picture = picture_of(comparison);
        let _ = writeln!(text, "![Hit rates and times to first token](routing/{picture})\n");
    }
    text
}

fn amazon(rows: &[AmazonRow]) -> String {
    let head = ["", "hit rate", "P50", "P90", "requests/s", "each host", "answered"];
    let mut table = Table::new("", head);
    for row in rows {
        let (random, prefix) = (&row.random, &row.prefix_aware);
        let component = if row.component { "component" } else { "endpoint" };
        let all = prefix.requests + prefix.failures;
        table.row([
            format!("{}, {component}, {}, {} users", row.workload, row.api, row.users),
            format!("{} → {}", percent(random.hit_rate), percent(prefix.hit_rate)),
            change(random.first_token_ms.p50, prefix.first_token_ms.p50),
            change(random.first_token_ms.p90, prefix.first_token_ms.p90),
            change(random.requests_per_second, prefix.requests_per_second),
            shares(prefix),
            percent(prefix.requests as f64 / all.max(1) as f64),
        ]);
    }
    table.to_string()
}

fn grids(grids: &[Grid]) -> String {
    let mut text = String::new();
    for grid in grids {
        let thresholds: Vec<String> =
            THRESHOLDS.iter().map(|threshold| format!("threshold {threshold}")).collect();
        let head = std::iter::once("PrefixLength").chain(thresholds.iter().map(String::as_str));
        let title = format!(
            "{}, {} sessions a second: hit rate / P50 ms / P99 ms / overflow",
            grid.workload,
            number(grid.per_second)
        );
        let mut table = Table::new(title, head);
        for length in LENGTHS {
            let cells = grid.cells.iter().filter(|cell| cell.0 == length).map(|(_, _, it)| {
                format!(
                    "{} / {} / {} / {}",
                    percent(it.hit_rate),
                    number(it.first_token_ms.p50),
                    number(it.first_token_ms.p99),
                    percent(it.overflow)
                )
            });
            table.row(std::iter::once(length.to_string()).chain(cells));
        }
        let _ = writeln!(text, "{table}");
        let picture = format!("routing/grid-{}.svg", slug(&grid.workload));
        let _ = writeln!(text, "![Hit rates over lengths and thresholds]({picture})\n");
    }
    text
}

fn kinds_of_change(results: &Results) -> Vec<&'static str> {
    let mut kinds: Vec<&'static str> = Vec::new();
    for row in &results.changes {
        if !kinds.contains(&row.change) {
            kinds.push(row.change);
        }
    }
    kinds
}

fn changes(results: &Results) -> String {
    let mut text = String::new();
    let head = [
        "",
        "prefixes that moved",
        "hit rate before",
        "first minute after",
        "minutes to recover",
        "failed",
    ];
    for kind in kinds_of_change(results) {
        let mut table = Table::new(format!("When {kind}"), head);
        for row in results.changes.iter().filter(|row| row.change == kind) {
            table.row([
                row.policy.clone(),
                percent(row.moved),
                percent(row.before),
                percent(row.after),
                row.minutes.map_or("not in this run".into(), |minutes| minutes.to_string()),
                row.failures.to_string(),
            ]);
        }
        let _ = writeln!(text, "{table}");
        let _ = writeln!(text, "![Hit rate by minute](routing/{}.svg)\n", slug(kind));
    }
    text
}
