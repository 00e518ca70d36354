//! `graphmill export-model RUN --to TARGET OUT`: writes a run's model for another library.

use clap::{Arg, ArgMatches, Command};
use graphmill_engine::{
    Error,
    saved::{SavedRun, export::TABLE},
};

use crate::{args, output};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let to = Arg::new("to").long("to").value_name("TARGET").required(true);
    Command::new("export-model")
        .about("Export a run's model for PyTorch Geometric, or as ONNX or safetensors")
        .long_about(
            "Export a run's model for PyTorch Geometric, or as ONNX or safetensors.\n\n\
             Safetensors is a file of the weights, oriented as in PyTorch. Pyg is a directory with model.py, \
             a torch.nn.Module of PyTorch Geometric's layers, its options and the weights; the outputs of \
             the module agree with graphmill predict on every node, and for links with the scores of pairs. \
             Onnx is a file of the model whose inputs are feature rows and the edges of each layer, for \
             runtimes without graph libraries. Both take every model of nodes and of links, of one type or \
             several and with edge features, and tables of embeddings; neither takes runs on events.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill export-model runs/cora --to safetensors cora.safetensors\n  \
             graphmill export-model runs/cora --to pyg cora-pyg\n  \
             graphmill export-model runs/cora --to onnx cora.onnx",
        )
        .arg(args::run_dir())
        .arg(args::explain_names(to, "Library or format", TABLE.iter(), ""))
        .arg(args::path("out", "OUT", "File or directory to write").required(true))
        .arg(args::flag(
            "last",
            "Export the last checkpoint instead of the best model",
            "The best model is that of the epoch with the best validation score",
        ))
        .arg(args::flag("force", "Replace an existing export", "Each file is replaced in one step"))
        .arg(args::json())
}

/// Exports the model and lists the files.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let out = args::required_path(matches, "out");
    let to = matches.get_one::<String>("to").expect("required");
    if out.exists() && !matches.get_flag("force") {
        let message = format!("{}: it exists; pass --force to replace it", out.display());
        return Err(Error::usage(message).into());
    }
    let run = SavedRun::open(args::required_path(matches, "run"), matches.get_flag("last"))?;
    let exported = run.export_model(to, out)?;
    if matches.get_flag("json") {
        return output::json(&exported);
    }
    let mut text = String::new();
    exported.files.iter().for_each(|file| text += &format!("{}\n", file.display()));
    output::text(&text)
}
