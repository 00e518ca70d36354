//! `config.toml`: read, checked, written and read again.

use graphmill_engine::TrainConfig;

use super::{Answer, one_file};

pub(super) const TOKENS: &[&[u8]] = &[
    b"dataset = \"\"\n",
    b"fanout = [15, 10]\n",
    b"fanout = \"15,10\"\n",
    b"layers = 2\n",
    b"hidden = 256\n",
    b"dropout = 0.5\n",
    b"input_layer = true\n",
    b"seed = \"18446744073709551615\"\n",
    b"lr = 1e-3\n",
    b"model = \"gat\"\n",
    b"schedule = \"cosine\"\n",
    b"# comment\n",
    b"[table]\n",
    b"inf",
    b"-1",
    b"1979-05-27",
    b"\"\"\"",
];

/// One input: the text of the file.
pub fn run(data: &[u8]) -> Answer {
    one_file("config", "config.toml", data, data.len(), |path| {
        let mut config = TrainConfig::default();
        let given = config.read_file(path)?;
        config.derive_options(&given)?;
        config.check()?;
        assert!(config.to_toml().parse::<toml::Table>().is_ok(), "written options can be read");
        Ok(())
    })
}
