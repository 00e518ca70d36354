//! `schema.toml`: parsed, written and parsed again.

use std::path::Path;

use graphmill_data::tables::TableSchema;

use super::Answer;

pub(super) const TOKENS: &[&[u8]] = &[
    b"[[nodes]]\n",
    b"[[edges]]\n",
    b"type = \"a\"\n",
    b"files = [\"a.csv\", \"b.csv\"]\n",
    b"id = \"id\"\n",
    b"src = \"a\"\n",
    b"dst = [\"b\", \"c\"]\n",
    b"columns = { x = \"number, quantile\" }\n",
    b"formats = { x = \"decimal-comma %\", y = \"%d.%m.%Y\" }\n",
    b"foreign_keys = [{ column = \"x\", to = \"a\" }]\n",
    b"separator = \"\\t\"\n",
    b"undirected = true\n",
];

/// One input: the text of the file.
pub fn run(data: &[u8]) -> Answer {
    let path = Path::new("schema.toml");
    let schema = TableSchema::parse(std::str::from_utf8(data)?, path)?;
    let again = TableSchema::parse(&schema.to_string(), path)?;
    assert!(again == schema, "a written schema is the same");
    Ok(())
}
