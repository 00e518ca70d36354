//! Text table of a plan.

use std::fmt;

use crate::{
    Profile, Report,
    memory::gb,
    prediction::{Prediction, TypeRows, digits},
    recommend::best,
};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hardware, profile) = (&self.hardware, &self.profile);
        let (seconds, bytes) = (&profile.seconds, &profile.bytes);
        writeln!(
            f,
            "{}: {} devices of {}, {:.1} times as fast as the profiled executor; a host of {} cores and {}",
            hardware.name,
            hardware.devices.count,
            gb(hardware.devices.memory as f64),
            self.speed,
            hardware.host.cores,
            gb(hardware.host.memory as f64)
        )?;
        writeln!(
            f,
            "{}: {} batches an epoch; of one, on {} cores: sample {:.2} ms, gather {:.2} ms, train {:.2} ms",
            profile.name,
            profile.batches,
            profile.cores,
            1e3 * seconds.sample,
            1e3 * seconds.gather,
            1e3 * seconds.train
        )?;
        writeln!(
            f,
            "topology {}, features {}, a batch's rows {}, sampling {}, a training step {}",
            gb(bytes.topology),
            gb(bytes.features),
            gb(bytes.batch_rows),
            gb(bytes.sample),
            gb(bytes.train)
        )?;
        if let Some(Profile { seconds, reuse: Some(rows), .. }) = profile.layered.as_deref() {
            let [sample, gather, train, make] =
                [seconds.sample, seconds.gather, seconds.train, rows.make].map(|seconds| 1e3 * seconds);
            writeln!(
                f,
                "with reused rows: sample {sample:.2} ms, gather {gather:.2} ms, train {train:.2} ms, and \
                 {make:.2} ms of the host to make them"
            )?;
        }
        profile.write_types(f)?;
        self.write_rows(f)?;
        self.write_type_rows(f)?;
        if self.strategies.iter().any(|row| row.standby > 0) {
            writeln!(f, "Trainers n+m: m Samplers may train once they have sampled")?;
        }
        for row in &self.not_planned {
            writeln!(f, "{}: not predicted, because {}", row.name, row.reason)?;
        }
        if let Some(reason) = &profile.without_reuse {
            writeln!(f, "no strategy is predicted with reused rows: {reason}")?;
        }
        self.write_sweep(f)?;
        let Some(best) = &self.recommendation else { return writeln!(f, "\nnothing fits this machine") };
        writeln!(f, "\nrecommended: {}, {}\n  {}", best.strategy, best.reason, best.command)
    }
}

impl Profile {
    /// Writes a line for each node type of a run on several.
    fn write_types(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for of in &self.types {
            write!(f, "{}: {:.0} input nodes of a batch", of.name, of.nodes)?;
            match of.row_bytes {
                0.0 if of.learned_bytes > 0.0 => writeln!(f, ", learned rows of {} bytes", of.learned_bytes)?,
                0.0 => writeln!(f, ", learned rows")?,
                bytes => writeln!(f, ", rows of {bytes:.0} bytes, gather {:.2} ms", 1e3 * of.gather)?,
            }
        }
        Ok(())
    }
}

impl Report {
    /// Writes the table of the strategies.
    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wide = self.strategies.iter().map(|row| row.label().len()).fold(13, usize::max);
        writeln!(
            f,
            "\n{:<wide$} {:>9} {:>9} {:>9}  {:>8}  {:>6}  {:<17} {:>7} {:>8} {:>6}",
            "strategy",
            "epoch, s",
            "Samplers",
            "Trainers",
            "cache, %",
            "hit, %",
            "bottleneck",
            "sample",
            "extract",
            "train"
        )?;
        for row in &self.strategies {
            let Some(epoch) = row.epoch_seconds else {
                let reason = row.reason.as_deref().unwrap_or("too large");
                writeln!(f, "{:<wide$} does not fit: {reason}", row.label())?;
                continue;
            };
            let trainers = match row.standby {
                0 => row.trainers.to_string(),
                standby => format!("{}+{standby}", row.trainers),
            };
            let busy = |part: f64| format!("{:.0} %", 100.0 * part);
            writeln!(
                f,
                "{:<wide$} {:>9} {:>9} {:>9}  {:>8.1}  {:>6.1}  {:<17} {:>7} {:>8} {:>6}",
                row.label(),
                digits(epoch),
                row.samplers,
                trainers,
                100.0 * row.cache_ratio,
                100.0 * row.hit_rate,
                row.bottleneck,
                busy(row.busy.sample),
                busy(row.busy.extract),
                busy(row.busy.train)
            )?;
        }
        Ok(())
    }

    /// Writes a line with the rows of each type in a minibatch of the recommended strategy.
    fn write_type_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(row) = best(&self.strategies).filter(|row| !row.types.is_empty()) else { return Ok(()) };
        let part = |of: &TypeRows| {
            format!("{} {:.1} % hits, {} over the link", of.name, 100.0 * of.hit_rate, gb(of.link_bytes))
        };
        let parts: Vec<String> = row.types.iter().map(part).collect();
        writeln!(f, "rows of {}: {}", row.label(), parts.join("; "))
    }

    /// Writes a line for each further number of devices.
    fn write_sweep(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sweep in &self.sweep {
            write!(f, "{} devices:", sweep.devices)?;
            for row in &sweep.strategies {
                match row.epoch_seconds {
                    Some(epoch) => write!(f, " {} {} s,", row.label(), digits(epoch))?,
                    None => write!(f, " {} does not fit,", row.label())?,
                }
            }
            let best = best(&sweep.strategies).map(Prediction::label);
            writeln!(f, " best {}", best.as_deref().unwrap_or("none"))?;
        }
        Ok(())
    }
}
