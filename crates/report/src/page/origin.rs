//! Section on how the run was made: command, dataset, machine, and the options that differ from
//! their defaults.

use std::fmt::Write;

use graphmill_core::units::{bytes, count};
use graphmill_engine::{
    options::{Changed, changed, command_line},
    record::Summary,
};
use serde_json::Value;

use super::{
    section::section,
    text::{self, escape},
};

/// Renders the section; empty for a run without options.
pub(super) fn origin(summary: &Summary) -> String {
    let Some(options) = summary.config.as_object().filter(|options| !options.is_empty()) else {
        return String::new();
    };
    let changed = changed(options);
    let dataset = options.get("dataset").and_then(Value::as_str).unwrap_or_default();
    let mut body = format!("<pre>{}</pre>\n<dl>\n", escape(&command_line(options)));
    let mut fact = |name: &str, value: &str| {
        let _ = writeln!(body, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    };
    let data = &summary.dataset;
    if data.nodes > 0 {
        fact("dataset", &data.name);
        fact("directory", if dataset.is_empty() { "built-in demo graph" } else { dataset });
        fact("checksum", data.checksum.as_deref().unwrap_or("–"));
    }
    if let Some(machine) = &summary.machine {
        if !machine.processor.is_empty() {
            fact("processor", &machine.processor);
        }
        fact("cores", &count(machine.cores as u64));
        if machine.memory_bytes > 0 {
            fact("memory", &bytes(machine.memory_bytes));
        }
        fact("system", &machine.system);
    }
    summary.nvidia.iter().for_each(|nvidia| fact(&nvidia.device, &nvidia.name));
    fact("graphmill", &summary.graphmill);
    body += "</dl>\n";
    if changed.is_empty() {
        body += "<p>Every option has its default.</p>\n";
    } else {
        body += "<div class=scroll><table>\n<thead><tr><th>changed option<th>value<th>default</tr></thead>\n\
                 <tbody>\n";
        for Changed { name, value, default } in &changed {
            let [name, value, default] =
                [name.replace('_', "-"), text::value(value), text::value(default)].map(|x| escape(&x));
            let _ = writeln!(body, "<tr><td>{name}<td>{value}<td>{default}</tr>");
        }
        body += "</tbody></table></div>\n";
    }
    section("How it was run", "A command that repeats the run, its data and its machine.", &body)
}

#[cfg(test)]
mod tests {
    use graphmill_engine::TrainConfig;

    use super::*;

    #[test]
    fn options_that_differ_from_their_defaults_are_listed() {
        let plain = Summary { config: TrainConfig::default().to_json(), ..Summary::default() };
        assert!(origin(&plain).contains("Every option has its default"));
        let config = TrainConfig { dataset: "my data".into(), lr: 0.01, ..TrainConfig::default() };
        let page = origin(&Summary { config: config.to_json(), ..Summary::default() });
        assert!(page.contains("<tr><td>lr<td>0.01<td>0.003</tr>") && !page.contains("<td>hidden"), "{page}");
        let command = command_line(config.to_json().as_object().unwrap());
        assert!(command.contains("'my data'") && page.contains(&format!("<pre>{}</pre>", escape(&command))));
    }
}
