//! Descriptions of tables and tasks as RelBench writes them.

use crate::input::join;

const USERS: &str = "\"id\"\nnull\n{}\n";
const ITEMS: &str = "\"id\"\n\"added\"\n{}\n";
const ENDS: &str = "null\n\"at\"\n{\"user\": \"users\", \"item\": \"items\"}\n";
const MANIFEST: &str = "{\"tables\": {\"users\": {\"pkey\": \"id\"}, \"items\": {\"pkey\": \"id\", \
    \"time_col\": \"added\"}, \"events\": {\"time_col\": \"at\", \"fkeys\": \
    {\"user\": \"users\", \"item\": \"items\"}}}}";
const LINKS: &str = "{\"task_type\": \"link_prediction\", \"src_entity_table\": \"users\", \
    \"src_entity_col\": \"user\", \"dst_entity_table\": \"items\", \
    \"dst_entity_col\": \"item\", \"time_col\": \"at\", \"eval_k\": 3}";
const TARGET: &str = "{\"task_type\": \"binary_classification\", \"entity_table\": \"users\", \
    \"entity_col\": \"user\", \"target_col\": \"label\", \"time_col\": \"at\", \
    \"remove_columns\": [[\"users\", \"age\"]]}";

pub(super) fn add(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let metadata = [("users", USERS), ("items", ITEMS), ("events", ENDS), ("train", ENDS)];
    let manifests = [("manifest.json", MANIFEST), ("task.json", LINKS)];
    let target = [("manifest.json", MANIFEST), ("task.json", TARGET)];
    for (name, files) in [("metadata", &metadata[..]), ("manifests", &manifests), ("target", &target)] {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
        add("import_relbench", name, join("", &files));
    }
}
