//! `report.html`: a self-contained page about a run, light or dark according to the reader's
//! system.
//!
//! A pure function of the [`Summary`]. Tooltips of points and bars contain the numbers.

mod baseline;
mod chart;
mod classes;
mod devices;
mod diagnostics;
mod diagram;
mod memory;
mod origin;
mod ranks;
mod reuse;
mod runs;
mod section;
mod sweep;
mod text;
mod types;
mod utilisation;

use std::fmt::Write;

use graphmill_core::units::{bytes, count};
use graphmill_engine::record::{EpochRecord, Summary, Traffic};

use chart::{Bar, Line, Point, points};
pub use runs::runs_html;
use section::{section, section_with_legend};
pub use sweep::sweep_html;
use text::{escape, percent, score, seconds, short};

const STYLE: &str = include_str!("style.css");

/// Policy of the page: it loads and runs nothing, whatever the names in a record are.
const POLICY: &str = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src \
                      'unsafe-inline'\">";

/// Parts of an epoch's time, with the classes of their colours.
const PARTS: [&str; 5] = ["order", "sample", "extract", "train", "evaluate"];

/// Start of a page with this title, up to the first section.
fn head(title: &str) -> String {
    let mut page = String::with_capacity(64 << 10);
    let style = STYLE.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n{POLICY}\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · graphmill</title>\n<style>\n{style}\n</style>\n<main>\n"
    );
    page
}

/// Renders the page.
pub fn html(summary: &Summary) -> String {
    let mut page = head(&escape(&summary.dataset.name));
    page += &header(summary);
    page += &cards(summary);
    page += &curves(summary);
    page += &baseline::baseline(summary);
    page += &classes::classes(summary);
    page += &diagnostics::diagnostics(summary);
    page += &stages(summary);
    page += &utilisation::utilisation(&summary.epochs);
    page += &reuse::reuse(summary);
    page += &devices::devices(&summary.epochs);
    page += &ranks::ranks(&summary.epochs);
    page += &types::types(summary);
    page += &traffic(&summary.epochs);
    page += &memory::memory(summary);
    page += &origin::origin(summary);
    page += &config(summary);
    page += &table(summary);
    let _ = write!(page, "<footer>Written by graphmill {}.</footer>\n</main>\n", escape(&summary.graphmill));
    page
}

/// Option of the run as text, empty if the name is unknown.
fn option(summary: &Summary, name: &str) -> String {
    summary.config.get(name).map_or(String::new(), |value| escape(&text::value(value)))
}

fn header(summary: &Summary) -> String {
    let data = &summary.dataset;
    let mut facts = Vec::new();
    if data.nodes > 0 {
        facts.push(format!("{} nodes", count(data.nodes as u64)));
        facts.push(format!("{} edges", count(data.edges as u64)));
        facts.push(format!("{} features", count(data.feature_dim as u64)));
        let kind = match (data.multilabel, data.values) {
            (true, _) => "labels",
            (false, true) if data.classes == 1 => "target",
            (false, true) => "targets",
            (false, false) => "classes",
        };
        let columns = match data.columns.len() {
            0 => String::new(),
            n => format!(" in {n} columns"),
        };
        facts.push(format!("{} {kind}{columns}", count(data.classes as u64)));
        let split = [data.train, data.valid, data.test].map(|n| count(n as u64));
        facts.push(format!(
            "{} training, {} validation and {} test {}",
            split[0], split[1], split[2], summary.scored_rows
        ));
    }
    let run: Vec<String> = [
        ("", "model", ""),
        ("", "layers", " layers"),
        ("", "hidden", " wide"),
        ("", "sampler", " sampler"),
        ("fanout ", "fanout", ""),
        ("", "strategy", ""),
        ("on ", "devices", ""),
    ]
    .iter()
    .map(|(before, name, after)| (option(summary, name), before, after))
    .filter(|(value, ..)| !value.is_empty())
    .map(|(value, before, after)| format!("{before}{value}{after}"))
    .collect();
    format!(
        "<header>\n<p class=mark>graphmill</p>\n<h1>{}</h1>\n<p>{}</p>\n<p>{}</p>\n</header>\n",
        escape(&summary.dataset.name),
        run.join(" · "),
        facts.join(" · ")
    )
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (n > 0).then(|| 0.5 * (values[(n - 1) / 2] + values[n / 2]))
}

fn cards(summary: &Summary) -> String {
    let mut out = String::from("<div class=cards>\n");
    let mut card = |class: &str, value: &str, what: &str| {
        let _ = writeln!(out, "<div{class}><b>{value}</b><span>{what}</span></div>");
    };
    let metric = escape(&summary.test.metric);
    if let Some(test) = summary.test.score {
        card(" class=main", &score(test), &format!("test {metric}"));
    }
    if let Some(valid) = summary.best.valid_score {
        card("", &score(valid), &format!("best validation score, epoch {}", summary.best.epoch));
    }
    let epochs = &summary.epochs;
    if let Some(typical) = median(epochs.iter().map(|e| e.seconds).collect()) {
        card("", &seconds(typical), "per epoch (median)");
    }
    let speeds = epochs.iter().map(|e| e.seeds_per_second).filter(|&x| x > 0.0).collect();
    if let Some(typical) = median(speeds) {
        card("", &short(typical), "seeds per second (median)");
    }
    let plural = if epochs.len() == 1 { "" } else { "s" };
    card("", &seconds(summary.seconds), &format!("in all, {} epoch{plural}", count(epochs.len() as u64)));
    if summary.peak_rss_bytes > 0 {
        card("", &bytes(summary.peak_rss_bytes), "peak memory");
    }
    for nvidia in &summary.nvidia {
        let what = format!(
            "of {} on {} ({})",
            bytes(nvidia.budget_bytes),
            escape(&nvidia.device),
            escape(&nvidia.name)
        );
        card("", &bytes(nvidia.peak_bytes), &what);
    }
    out + "</div>\n"
}

fn curves(summary: &Summary) -> String {
    let epochs = &summary.epochs;
    if epochs.is_empty() {
        return section("No epoch yet", "Nothing has been recorded yet: the first epoch has not ended.", "");
    }
    let loss = Line { class: "loss", points: points(epochs, "loss", |e| Some(e.loss)) };
    let valid = Line { class: "valid", points: points(epochs, "validation", |e| e.valid_score) };
    let train = Line { class: "fit", points: points(epochs, "training", |e| e.train_score) };
    let mut out = String::from("<div class=pair>\n");
    out += &section(
        "Training loss",
        "Mean over the seeds, by epoch.",
        &chart::lines("training loss", &[loss], None),
    );

    let metric = match summary.test.metric.as_str() {
        "" | "auto" => "Score".to_string(),
        name => escape(name),
    };
    let mut legend = String::new();
    if !train.points.is_empty() {
        legend += "<ul class=legend><li class=valid><i class=swatch></i>validation</li>\
                   <li class=fit><i class=swatch></i>training</li></ul>";
    }
    let best = format!("By epoch; the dot is the best, epoch {}.", summary.best.epoch);
    let chart = chart::lines("validation score", &[valid, train], Some(summary.best.epoch));
    if chart.is_empty() {
        let none = format!("No scores: the dataset has no validation {}.", summary.scored_rows);
        out += &section("Validation score", &none, "");
    } else {
        out += &section_with_legend(&format!("Validation {metric}"), &legend, &best, &chart);
    }
    out += "</div>\n";

    // A constant needs no chart.
    let varies = |values: &[Point]| values.windows(2).any(|pair| pair[0].value != pair[1].value);
    let mut more = String::new();
    let lr = points(epochs, "learning rate", |e| (e.lr > 0.0).then_some(e.lr));
    if varies(&lr) {
        let chart = chart::lines("learning rate", &[Line { class: "other", points: lr }], None);
        more += &section("Learning rate", "At the end of each epoch.", &chart);
    }
    let norms = points(epochs, "norm", |e| e.grad_norm);
    if varies(&norms) {
        let chart = chart::lines("gradient norm", &[Line { class: "other", points: norms }], None);
        more += &section("Gradient norm", "The largest of each epoch, before clipping.", &chart);
    }
    if !more.is_empty() {
        let _ = write!(out, "<div class=pair>\n{more}</div>\n");
    }
    out
}

/// Seconds of an epoch in the order of [`PARTS`].
fn parts(epoch: &EpochRecord) -> Vec<f64> {
    let mut parts: Vec<f64> = epoch.stages.parts().iter().map(|(_, seconds)| *seconds).collect();
    parts.push(epoch.eval_seconds);
    parts
}

fn stages(summary: &Summary) -> String {
    let epochs = &summary.epochs;
    let mut sums = vec![0.0; PARTS.len()];
    for epoch in epochs {
        sums.iter_mut().zip(parts(epoch)).for_each(|(sum, part)| *sum += part);
    }
    let all: f64 = sums.iter().sum();
    if all <= 0.0 {
        return String::new();
    }
    // The sum of concurrent stages exceeds the elapsed time.
    let overlaps = epochs.iter().any(|e| parts(e).iter().sum::<f64>() > 1.1 * (e.seconds + e.eval_seconds));
    let bars: Vec<Bar> = epochs
        .iter()
        .map(|e| {
            let parts = parts(e);
            let whole = e.seconds + e.eval_seconds;
            let each: Vec<String> =
                PARTS.iter().zip(&parts).map(|(name, part)| format!("{name} {}", seconds(*part))).collect();
            Bar {
                epoch: e.epoch,
                whole: overlaps.then_some(whole),
                title: format!("epoch {}, {}: {}", e.epoch, seconds(whole), each.join(", ")),
                label: seconds(whole),
                parts,
            }
        })
        .collect();
    let (chart, every) = chart::bars("seconds by stage", &PARTS, &bars);
    let mut body = String::from("<div class=share>");
    for (name, sum) in PARTS.iter().zip(&sums) {
        let share = sum / all;
        let title = format!("{name} {}, {}", seconds(*sum), percent(share));
        let _ =
            write!(body, "<div class={name} style=\"width:{:.3}%\" title=\"{title}\"></div>", share * 100.0);
    }
    body += "</div>\n<ul class=legend>";
    for (name, sum) in PARTS.iter().zip(&sums) {
        let _ = write!(
            body,
            "<li><i class={name}></i>{name}<em>{} · {}</em></li>",
            seconds(*sum),
            percent(sum / all)
        );
    }
    if overlaps {
        body += "<li><i class=tick-mark></i>elapsed time</li>";
    }
    body += "</ul>\n";
    let mut note = String::from("Above: the whole run. Below: seconds by epoch.");
    if every > 1 {
        let _ = write!(note, " Each bar is the mean of {every} epochs.");
    }
    if overlaps {
        note += " Concurrent stages add up to more than the elapsed time.";
    }
    if epochs.iter().any(|e| e.reuse.is_some()) {
        note += " Computing reused rows belongs to no batch and is not included: see the workers.";
    } else if summary.staleness.bound > 0 {
        let (bound, max) = (summary.staleness.bound, summary.staleness.max);
        let _ = write!(note, " Gradients were at most {max} updates late; the bound is {bound}.");
    }
    section("Where the time went", &note, &format!("{body}<div class=wide>{chart}</div>"))
}

fn traffic(epochs: &[EpochRecord]) -> String {
    let mut sums = Traffic::default();
    epochs.iter().for_each(|epoch| sums += epoch.traffic);
    let rows = sums.rows();
    if rows == 0 {
        return String::new();
    }
    let mut body = String::from(
        "<div class=scroll><table><thead><tr><th>tier<th>rows<th>share<th>bytes<th>per \
         epoch<th>seconds</tr></thead><tbody>\n",
    );
    for (name, tier) in sums.tiers() {
        let _ = writeln!(
            body,
            "<tr{}><td>{name}<td>{}<td>{}<td>{}<td>{}<td>{:.2}</tr>",
            if tier.rows == 0 { " class=zero" } else { "" },
            count(tier.rows),
            percent(tier.rows as f64 / rows as f64),
            bytes(tier.bytes),
            bytes(tier.bytes / epochs.len() as u64),
            tier.seconds(),
        );
    }
    body += "</tbody></table></div>\n";
    let hits = points(epochs, "hit rate", |e| e.hit_rate);
    let note = match median(hits.iter().map(|p| p.value).collect()) {
        Some(typical) => {
            format!("Feature rows read, nearest tier first. Hit rate {} (median).", percent(typical))
        }
        None => "Feature rows read, nearest tier first.".to_string(),
    };
    let table = section("Feature traffic", &note, &body);
    if hits.windows(2).any(|pair| pair[0].value != pair[1].value) {
        let chart = chart::lines("hit rate", &[Line { class: "other", points: hits }], None);
        let chart = section("Hit rate", "Rows served by the nearest tier, out of all, by epoch.", &chart);
        return format!("<div class=pair>\n{table}{chart}</div>\n");
    }
    table
}

fn config(summary: &Summary) -> String {
    let Some(options) = summary.config.as_object().filter(|options| !options.is_empty()) else {
        return String::new();
    };
    let mut body = String::from("<dl>\n");
    for (name, value) in options {
        let (name, value) = (escape(&name.replace('_', "-")), escape(&text::value(value)));
        let _ = writeln!(body, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    section("Configuration", "Every option of the run, as in config.toml.", &(body + "</dl>"))
}

fn table(summary: &Summary) -> String {
    if summary.epochs.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<section>\n<details><summary>Epoch by epoch</summary>\n<div \
         class=scroll><table><thead><tr><th>epoch<th>loss\
         <th>validation<th>seconds<th>order<th>sample<th>extract<th>train<th>evaluate\
         <th>seeds<th>edges<th>hit rate\
         <th>bottleneck<th>memory</tr></thead><tbody>\n",
    );
    for e in &summary.epochs {
        let star = if e.epoch == summary.best.epoch { " class=star" } else { "" };
        let _ = write!(
            out,
            "<tr{star}><td>{}<td>{:.4}<td>{}<td>{:.3}",
            e.epoch,
            e.loss,
            e.valid_score.map_or("–".to_string(), score),
            e.seconds
        );
        for part in parts(e) {
            let _ = write!(out, "<td>{part:.3}");
        }
        let hits = e.hit_rate.map_or("–".to_string(), percent);
        let stage = e.bottleneck.map_or("–", |stage| stage.name());
        let memory = e.memory_bytes.map_or("–".to_string(), bytes);
        let (seeds, edges) = (count(e.seeds), count(e.sampled_edges));
        let _ = writeln!(out, "<td>{seeds}<td>{edges}<td>{hits}<td>{stage}<td>{memory}</tr>");
    }
    out + "</tbody></table></div>\n</details>\n</section>\n"
}

#[cfg(test)]
mod tests;
