//! The report's pictures, as SVG.

use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::*;

use super::results::{ChangeRow, Comparison, Grid, LENGTHS, THRESHOLDS};
use crate::report::number;

/// Of everything that is written in a picture.
const FONT: &str = "sans-serif";
/// For the gateway's own rules.
const OURS: RGBColor = RGBColor(38, 110, 166);
/// For what Amazon has without affinity, and for round robin.
const PLAIN: RGBColor = RGBColor(160, 160, 160);
/// For other routers.
const OTHERS: RGBColor = RGBColor(222, 143, 66);
/// For the oracle.
const BEST: RGBColor = RGBColor(92, 150, 92);

fn color(policy: &str) -> RGBColor {
    match policy {
        "RANDOM" | "round robin" | "LEAST_OUTSTANDING_REQUESTS" => PLAIN,
        "oracle" => BEST,
        name if name.starts_with("SMG")
            || name.starts_with("KubeAI")
            || name.starts_with("llm-d")
            || name.starts_with("Preble") =>
        {
            OTHERS
        }
        _ => OURS,
    }
}

fn wrong(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("drawing: {error}")
}

/// Hit rate and time to first token of each rule: a bar each, and a mark for P90.
///
/// # Errors
/// When the file cannot be written.
pub fn comparison(comparison: &Comparison, file: &Path) -> anyhow::Result<()> {
    let rules = &comparison.rules;
    let (row, left) = (24, 240);
    let height = 70 + row * rules.len() as u32;
    let root = SVGBackend::new(file, (920, height)).into_drawing_area();
    root.fill(&WHITE).map_err(wrong)?;
    let text = |size: u32| TextStyle::from((FONT, size).into_font());
    let title = format!("{}, {} load", comparison.workload, comparison.load);
    root.draw(&Text::new(title, (10, 8), text(17))).map_err(wrong)?;
    let slowest = rules.iter().map(|rule| rule.first_token_ms.p90).fold(1.0, f64::max);
    let (hit_width, time_width) = (250.0, 240.0);
    let time_left = left + hit_width as i32 + 70;
    root.draw(&Text::new("hit rate", (left, 34), text(13))).map_err(wrong)?;
    let head = "time to first token, ms: bar P50, line to P90";
    root.draw(&Text::new(head, (time_left, 34), text(13))).map_err(wrong)?;
    for (at, rule) in rules.iter().enumerate() {
        let top = 56 + row as i32 * at as i32;
        let color = color(&rule.policy);
        let bar = |from: i32, width: f64| {
            Rectangle::new([(from, top), (from + width as i32, top + 15)], color.filled())
        };
        root.draw(&Text::new(rule.policy.clone(), (10, top), text(13))).map_err(wrong)?;
        let hits = rule.hit_rate * hit_width;
        root.draw(&bar(left, hits)).map_err(wrong)?;
        let label = format!("{:.1}%", rule.hit_rate * 100.0);
        root.draw(&Text::new(label, (left + hits as i32 + 5, top + 1), text(12))).map_err(wrong)?;
        let width = |time: f64| time / slowest * time_width;
        let (p50, p90) = (rule.first_token_ms.p50, rule.first_token_ms.p90);
        root.draw(&bar(time_left, width(p50))).map_err(wrong)?;
        let middle = top + 7;
        let end = time_left + width(p90) as i32;
        let line = PathElement::new([(time_left, middle), (end, middle)], color.stroke_width(2));
        root.draw(&line).map_err(wrong)?;
        let tick = PathElement::new([(end, top + 2), (end, top + 13)], color.stroke_width(2));
        root.draw(&tick).map_err(wrong)?;
        let label = format!("{} / {}", number(p50), number(p90));
        root.draw(&Text::new(label, (end + 6, top + 1), text(12))).map_err(wrong)?;
    }
    if comparison.bound > 0.0 {
        let x = left + (comparison.bound * hit_width) as i32;
        let bottom = 56 + row as i32 * rules.len() as i32;
        let line = PathElement::new([(x, 52), (x, bottom)], BLACK.mix(0.5).stroke_width(1));
        root.draw(&line).map_err(wrong)?;
    }
    root.present().map_err(wrong)
}

/// Hit rates over lengths and thresholds.
///
/// # Errors
/// When the file cannot be written.
pub fn grid(grid: &Grid, file: &Path) -> anyhow::Result<()> {
    let (width, row, left, top) = (112, 46, 96, 66);
    let size = (
        (left + width * THRESHOLDS.len() as i32 + 20) as u32,
        (top + row * LENGTHS.len() as i32 + 16) as u32,
    );
    let root = SVGBackend::new(file, size).into_drawing_area();
    root.fill(&WHITE).map_err(wrong)?;
    let text = |size: u32| TextStyle::from((FONT, size).into_font());
    let title = format!("{}: hit rate, P50 of the time to first token", grid.workload);
    root.draw(&Text::new(title, (10, 8), text(15))).map_err(wrong)?;
    for (column, threshold) in THRESHOLDS.into_iter().enumerate() {
        let label = format!("threshold {threshold}");
        let at = (left + width * column as i32 + 6, 42);
        root.draw(&Text::new(label, at, text(13))).map_err(wrong)?;
    }
    for (line, length) in LENGTHS.into_iter().enumerate() {
        let y = top + row * line as i32;
        root.draw(&Text::new(length.to_string(), (20, y + 14), text(13))).map_err(wrong)?;
        for (column, threshold) in THRESHOLDS.into_iter().enumerate() {
            let cell = grid.cells.iter().find(|cell| (cell.0, cell.1) == (length, threshold));
            let Some((_, _, summary)) = cell else { continue };
            let x = left + width * column as i32;
            let shade = OURS.mix(0.08 + 0.85 * summary.hit_rate);
            let corners = [(x, y), (x + width - 3, y + row - 3)];
            root.draw(&Rectangle::new(corners, shade.filled())).map_err(wrong)?;
            let ink = if summary.hit_rate > 0.55 { WHITE } else { BLACK };
            let rate = format!("{:.1}%", summary.hit_rate * 100.0);
            root.draw(&Text::new(rate, (x + 8, y + 6), text(14).color(&ink))).map_err(wrong)?;
            let time = format!("{} ms", number(summary.first_token_ms.p50));
            root.draw(&Text::new(time, (x + 8, y + 24), text(12).color(&ink))).map_err(wrong)?;
        }
    }
    root.present().map_err(wrong)
}

/// The hit rate of each minute around a change, a line for each rule.
///
/// # Errors
/// When the file cannot be written.
pub fn change(rows: &[&ChangeRow], file: &Path) -> anyhow::Result<()> {
    let root = SVGBackend::new(file, (920, 320)).into_drawing_area();
    root.fill(&WHITE).map_err(wrong)?;
    let minutes = rows.iter().map(|row| row.by_minute.len()).max().unwrap_or(1);
    let title =
        format!("hit rate by minute; {} in the middle", rows.first().map_or("", |row| row.change));
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 16))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..minutes as f64, 0.0..1.0)
        .map_err(wrong)?;
    chart
        .configure_mesh()
        .x_desc("minute")
        .y_label_formatter(&|rate| format!("{:.0}%", rate * 100.0))
        .light_line_style(WHITE)
        .draw()
        .map_err(wrong)?;
    let colors = [OURS, OTHERS, BEST, RGBColor(150, 90, 160), RGBColor(190, 80, 80), PLAIN];
    for (row, color) in rows.iter().zip(colors) {
        let points = row.by_minute.iter().enumerate().map(|(at, rate)| (at as f64 + 0.5, *rate));
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))
            .map_err(wrong)?
            .label(row.policy.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .label_font((FONT, 13))
        .draw()
        .map_err(wrong)?;
    root.present().map_err(wrong)
}
