//! Options of `import tables` that describe the tables of nodes, edges and targets.

use clap::{Arg, ArgAction, Command};

use crate::args;

/// Options that the short help leaves out.
pub(super) const UNCOMMON: &[&str] = &[
    "ignore",
    "format",
    "edge-format",
    "target-format",
    "null",
    "edge-null",
    "target-null",
    "missing",
    "node-time",
    "edge-weight",
    "src-type",
    "dst-type",
    "edge-split",
    "reverse",
    "target-split",
    "separator",
    "quote",
    "split-seed",
    "category-limit",
    "node-type",
    "edge-column",
    "edge-type",
    "edge-task",
    "keep-duplicates",
    "target-task",
    "target-name",
];

/// `--NAME VALUE`, which may be given several times.
fn repeated(name: &'static str, value: &'static str, short: &'static str, more: &str) -> Arg {
    args::option(name, value, short, more).action(ArgAction::Append)
}

/// Options of the values of single columns.
fn of_values() -> [Arg; 2] {
    [
        repeated(
            "format",
            "NAME=FORMAT",
            "Format of numbers or dates [default: found]",
            "decimal-comma (1.234,56) or decimal-point (1,234.56), with a sign of the unit as in \
             'price=decimal-comma €'; a pattern of dates, such as opened=%d.%m.%Y; or unix-s, unix-ms, \
             unix-us and unix-ns of numbers since 1970. Years of two digits need %y: 00 to 69 are 2000 to \
             2069, and 70 to 99 are 1970 to 1999. A format is found if it is the only one that reads all \
             values; the import says so",
        ),
        repeated(
            "null",
            "NAME=TEXT",
            "Text that stands for a missing value, such as age=unknown",
            "Once for each text and column. Empty fields are always missing, and words such as NA, n/a, null \
             and - in columns of numbers, dates and booleans",
        ),
    ]
}

/// Adds the options of the node table.
pub(super) fn with_nodes(command: Command) -> Command {
    command
        .next_help_heading("Nodes")
        .arg(repeated(
            "nodes",
            "FILE",
            "Table with a row per node",
            "A file, a directory, a pattern such as 'part-*.csv', or - for standard input. Without it the \
             nodes are those that edges name",
        ))
        .arg(args::option("id", "COLUMN", "Column of the key", "Several columns: --id bank,number"))
        .arg(args::option(
            "label",
            "COLUMNS",
            "Column to predict, or several of numbers or of classes",
            "Rows without a label are predicted. Several columns, separated by commas, are values, or a \
             class in each, that one model predicts; a row needs one of them to train. Example: --label \
             balance,limit",
        ))
        .arg(args::option(
            "task",
            "KIND",
            "classification or regression [default: by the label]",
            "By default a label with fractions is a regression, and so are several labels of numbers",
        ))
        .arg(args::option(
            "split",
            "RULE",
            "Train, valid and test nodes [default: random:60,20,20]",
            "random:A,B,C and stratified:A,B,C draw percentages of the labelled rows, stratified of each \
             class; column:NAME reads train, valid and test (or 0, 1, 2); masks:TRAIN,VALID,TEST reads \
             three columns; time:COLUMN:A,B,C trains on the oldest rows and tests on the newest",
        ))
        .arg(args::option(
            "features",
            "COLUMNS",
            "Columns to use [default: all others]",
            "Such as --features age,balance",
        ))
        .arg(args::option("ignore", "COLUMNS", "Columns not to use", "Such as --ignore phone,comment"))
        .arg(repeated(
            "column",
            "NAME=HOW",
            "Treatment of a column, such as age=quantile,indicator",
            "A kind (number, boolean, date, category, code, embedding, ignore), the scale of a number \
             (standard, quantile, raw), parts of a date (age, year, month, weekday, hour), and missing \
             values (mean, zero, indicator)",
        ))
        .args(of_values())
        .arg(args::option(
            "missing",
            "HOW",
            "Filling of missing values: mean, zero or indicator [default: mean]",
            "indicator adds a column that is 1 where the value is missing",
        ))
        .arg(args::option(
            "category-limit",
            "N",
            "Largest number of values of a category [default: 50]",
            "A column of texts with more values is free text, which is ignored",
        ))
        .arg(args::option(
            "node-time",
            "COLUMN",
            "Column of the time from which a node exists",
            "Dates, or integers of the unit of all other times. Rows of --targets at a time, and predict \
             --at TIME, read only the nodes that exist by then",
        ))
        .arg(args::option("node-type", "NAME", "Name of the node type [default: node]", ""))
}

/// Adds the options of the edge table.
pub(super) fn with_edges(command: Command) -> Command {
    command
        .next_help_heading("Edges")
        .arg(repeated("edges", "FILE", "Table with a row per edge", "As for --nodes"))
        .arg(args::option(
            "src",
            "COLUMN",
            "Column of the source's key",
            "Several columns: --src bank,number",
        ))
        .arg(args::option(
            "dst",
            "COLUMN",
            "Column of the destination's key",
            "Messages flow from source to destination",
        ))
        .arg(args::option(
            "src-type",
            "NAME",
            "Node type of the sources [default: that of --node-type]",
            "With --dst-type for edges between two kinds of nodes, such as --src-type user --dst-type item: \
             equal keys of two types are different nodes. --nodes has the rows of --node-type; the nodes of \
             another type are those that edges name",
        ))
        .arg(args::option(
            "dst-type",
            "NAME",
            "Node type of the destinations [default: that of --node-type]",
            "As --src-type",
        ))
        .arg(args::option(
            "edge-time",
            "COLUMN",
            "Column of the time of an edge",
            "Dates, or integers of any unit",
        ))
        .arg(args::option("edge-weight", "COLUMN", "Column of the weight of an edge", "A number from 0"))
        .arg(args::option(
            "edge-features",
            "COLUMNS",
            "Columns that become edge features",
            "Such as --edge-features amount,kind",
        ))
        .arg(args::option(
            "edge-label",
            "COLUMNS",
            "Column of edges to predict, as --label",
            "A class or value per edge, for train --task COLUMN. If edges have times, each prediction sees \
             only earlier edges. No edge reads a label",
        ))
        .arg(args::option("edge-task", "KIND", "classification or regression of edges, as --task", ""))
        .arg(args::option(
            "edge-split",
            "RULE",
            "Train, valid and test edges, as --split [default: by time]",
            "Without --edge-time the default is random:60,20,20",
        ))
        .arg(repeated("edge-column", "NAME=HOW", "Treatment of an edge feature, as --column", ""))
        .arg(repeated("edge-format", "NAME=FORMAT", "Format of a column, as --format", ""))
        .arg(repeated("edge-null", "NAME=TEXT", "Text for a missing value, as --null", ""))
        .arg(args::option("edge-type", "NAME", "Name of the edge type [default: edge]", ""))
        .arg(args::option("reverse", "NAME", "Add the reverse edges as another edge type", ""))
        .arg(args::flag("undirected", "Store every edge in both directions", ""))
        .arg(args::flag(
            "keep-duplicates",
            "Keep parallel edges instead of merging them",
            "Edges with times or features are always kept",
        ))
}

/// Adds the options of the table of targets.
pub(super) fn with_targets(command: Command) -> Command {
    command
        .next_help_heading("Targets")
        .arg(repeated(
            "targets",
            "FILE",
            "Table of targets, with a row per node and time",
            "As for --nodes. A node may have a row at each of several times, and a prediction of the row \
             sees what existed then",
        ))
        .arg(args::option("target-id", "COLUMN", "Column of the node's key", "As for --id"))
        .arg(args::option(
            "target-time",
            "COLUMN",
            "Column of the time of a target",
            "Dates, or integers of the unit of all other times. Without it a node has one row",
        ))
        .arg(args::option("target-label", "COLUMNS", "Column to predict, as --label", ""))
        .arg(args::option("target-task", "KIND", "classification or regression, as --task", ""))
        .arg(args::option(
            "target-split",
            "RULE",
            "Train, valid and test rows, as --split [default: by time]",
            "Without --target-time the default is random:60,20,20",
        ))
        .arg(repeated("target-format", "NAME=FORMAT", "Format of a column, as --format", ""))
        .arg(repeated("target-null", "NAME=TEXT", "Text for a missing value, as --null", ""))
        .arg(args::option(
            "target-name",
            "NAME",
            "Name of the task [default: that of the label]",
            "The name that train --task takes",
        ))
}
