//! Text table of hit rates.

use std::fmt;

use super::Report;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} rows of {} bytes", self.dataset, self.rows, self.row_bytes)?;
        let widest = self.results.iter().map(|row| row.policy.len()).max().unwrap_or(0);
        for reads in &self.samplers {
            let rows: Vec<_> = self.results.iter().filter(|row| row.sampler == reads.sampler).collect();
            write!(f, "\n{}: {:.0} rows per epoch", reads.sampler, reads.rows_per_epoch)?;
            if let Some(similarity) = reads.similarity {
                write!(f, ", consecutive epochs are {:.1} % similar", 100.0 * similarity)?;
            }
            write!(f, "\n{:widest$}", "hit rate, %")?;
            let first = rows.first().map_or("", |row| &row.policy);
            for row in rows.iter().filter(|row| row.policy == first) {
                write!(f, " {:>8}", format!("{}%", 100.0 * row.ratio))?;
            }
            let mut policy = "";
            for row in rows {
                if row.policy != policy {
                    policy = &row.policy;
                    write!(f, "\n{policy:widest$}")?;
                }
                write!(f, " {:>8.1}", 100.0 * row.hit_rate)?;
            }
            writeln!(f)?;
        }
        self.write_advice(f)
    }
}

impl Report {
    /// Writes the advice, a line for each sampler.
    pub(crate) fn write_advice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for advice in &self.advice {
            let of = match self.samplers.len() {
                1 => String::new(),
                _ => format!(" for --sampler {}", advice.sampler),
            };
            write!(f, "\nadvice{of}: {}\n", advice.text)?;
        }
        Ok(())
    }
}
