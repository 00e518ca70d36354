//! `graphmill serve RUN`: answers for the nodes or links of a run over HTTP.

use clap::{ArgMatches, Command};

use crate::args;

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let command = Command::new("serve")
        .about("Answer for a run's nodes or links over HTTP")
        .long_about(
            "Answer for a run's nodes or links over HTTP.\n\n\
             POST /v1/predict takes {\"keys\": [...]} or {\"ids\": [...]} and returns classes with \
             probabilities, or values: the output of graphmill predict, or with \"seed\" an answer from \
             neighbours that the run's sampler draws. {\"new\": {...}} has new nodes with their edges, \
             which are joined to the graph as by graphmill predict --on. A run on several node types answers \
             for the nodes of its task's type. A run on links answers POST /v1/links/top with the best \
             candidates of nodes, /v1/links/score with scores of pairs and /v1/links/embed with embeddings: \
             the output of graphmill predict --top-k and graphmill embed. One on events does so as of the \
             time \"at\". Requests that arrive together are answered in one batch; that changes no answer. \
             GET /healthz, /metrics (Prometheus) and /openapi.json describe the service. SIGHUP or POST \
             /v1/reload opens the run directory again, and a run that cannot be opened leaves the old one in \
             place. SIGTERM and SIGINT end the service after the requests in flight. The token is read from \
             --token-file, or from the environment variable GRAPHMILL_TOKEN.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill serve runs/bank\n  \
             graphmill serve runs/shop --all-edges\n  \
             graphmill serve runs/bank --listen 0.0.0.0:8080 --token-file token.txt",
        )
        .arg(args::run_dir())
        .arg(args::option(
            "listen",
            "ADDRESS",
            "Host and port to listen at [default: 127.0.0.1:8080]",
            "An address that can be reached from the network needs a token, or --anonymous. Port 0 takes a \
             free one. Example: --listen 0.0.0.0:8080",
        ))
        .arg(args::path_option(
            "dataset",
            "DATASET",
            "Answer for another dataset [default: the run's]",
            "Use it if the run's dataset has moved, or for newer data",
        ))
        .arg(args::flag(
            "last",
            "Use the last checkpoint instead of the best model",
            "The best model is that of the epoch with the best validation score",
        ))
        .arg(args::flag(
            "all-edges",
            "Read all edges, for a run on links",
            "By default embeddings read the edges of training only, as in graphmill predict. Set it to \
             recommend new edges",
        ))
        .arg(args::path_option(
            "token-file",
            "FILE",
            "File with the token that requests must have",
            "Requests send it as Authorization: Bearer TOKEN",
        ))
        .arg(args::flag(
            "anonymous",
            "Listen at an address of the network without a token",
            "Everybody who reaches the address may ask, and reload the run",
        ));
    with_limits(command.arg(args::option(
        "cache-embeddings",
        "WHAT",
        "Rows of known nodes to compute once: none, bottom [default: none]",
        "bottom computes the rows below the model's last layer for all nodes at the start and after each \
         reload, and keeps them in memory, so that an exact answer reads one hop. Answers keep their bits. \
         Set it if clients ask without a seed. Example: --cache-embeddings bottom",
    )))
    .arg(args::threads())
}

/// Adds the limits of requests and batches.
fn with_limits(command: Command) -> Command {
    command
        .arg(args::option(
            "batch-window",
            "MS",
            "Milliseconds that a batch waits for more requests [default: 0]",
            "With 0, a batch holds the requests that arrived while the previous one was computed. A window \
             raises the throughput of slow models, and the time of a lone request",
        ))
        .arg(args::option(
            "max-batch",
            "N",
            "Nodes after which a batch is full [default: 1024]",
            "A lower number bounds the time of a batch",
        ))
        .arg(args::option(
            "max-nodes",
            "N",
            "Largest number of nodes or pairs of a request [default: 1000]",
            "Nodes are known or new ones. A request of more is refused with status 413",
        ))
        .arg(args::option(
            "max-candidates",
            "N",
            "Largest number of candidates of a request [default: 100000]",
            "Nodes times top_k, for a run on links. A request of more is refused with status 413",
        ))
        .arg(args::option(
            "max-edges",
            "N",
            "Largest number of new edges, or events, of a request [default: 10000]",
            "A request of more is refused with status 413",
        ))
        .arg(args::option(
            "max-body",
            "BYTES",
            "Largest body of a request [default: 1M]",
            "A larger one is refused with status 413. Suffixes K, M, G and T are powers of 1024",
        ))
        .arg(args::option(
            "max-requests",
            "N",
            "Largest number of requests at the same time [default: 256]",
            "A request beyond them is refused with status 503",
        ))
        .arg(args::option(
            "max-connections",
            "N",
            "Largest number of open connections [default: 4096]",
            "Others wait until one ends. The limit of open files bounds it, too",
        ))
        .arg(args::option(
            "timeout",
            "SECONDS",
            "Seconds in which a header, a body or a reading must end [default: 30]",
            "A body that does not arrive gets status 408. A connection without a whole header, an idle one, \
             and one whose client does not read are closed. A stop waits as long for requests in flight",
        ))
}

/// Says how to get a program with the service.
#[cfg(not(feature = "serve"))]
pub(crate) fn run(_: &ArgMatches) -> anyhow::Result<()> {
    let message = "serve: this program was built without the HTTP service; build it with `--features serve`, \
                   or use graphmill predict";
    Err(graphmill_engine::Error::usage(message).into())
}

/// Serves until a signal ends it.
#[cfg(feature = "serve")]
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    use std::time::Duration;

    use graphmill_engine::{Error, config::Bytes};
    use graphmill_serve::{ServeOptions, Token, serve};

    use crate::progress::{self, Form};

    let with = ServeOptions::default();
    let number = |name: &str, default: usize| match matches.get_one::<String>(name) {
        None => Ok(default),
        Some(word) => word.parse().map_err(|_| Error::usage(format!("--{name} {word}: pass an integer"))),
    };
    let bytes = matches.get_one::<String>("max-body").map(|word| word.parse::<Bytes>());
    let bytes = bytes.transpose().map_err(|e| Error::usage(format!("--max-body: {e}")))?;
    let token = match (args::get_path(matches, "token-file"), std::env::var("GRAPHMILL_TOKEN")) {
        (Some(file), _) => Some(Token::read(file)?),
        (None, Ok(word)) => Some(Token::new(word)?),
        (None, Err(_)) => None,
    };
    let options = ServeOptions {
        run: args::required_path(matches, "run").to_path_buf(),
        dataset: args::get_path(matches, "dataset").map(Into::into),
        last: matches.get_flag("last"),
        all_edges: matches.get_flag("all-edges"),
        listen: matches.get_one::<String>("listen").cloned().unwrap_or(with.listen),
        token,
        anonymous: matches.get_flag("anonymous"),
        cache: matches.get_one::<String>("cache-embeddings").map_or(Ok(with.cache), |word| word.parse())?,
        window: Duration::from_millis(number("batch-window", 0)? as u64),
        max_batch: number("max-batch", with.max_batch)?,
        max_nodes: number("max-nodes", with.max_nodes)?,
        max_candidates: number("max-candidates", with.max_candidates)?,
        max_edges: number("max-edges", with.max_edges)?,
        max_body: bytes.map_or(with.max_body, |bytes| bytes.0 as usize),
        max_requests: number("max-requests", with.max_requests)?,
        max_connections: number("max-connections", with.max_connections)?,
        patience: Duration::from_secs(number("timeout", with.patience.as_secs() as usize)? as u64),
    };
    let threads = matches.get_one::<u64>("threads").map_or(0, |&n| n as usize);
    // the thread of batches asks the pool, which this one therefore does not join
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    // the log of a service is no progress, which `none` hides
    let form = progress::of_environment()?.filter(|&form| form == Form::Json).unwrap_or(Form::Plain);
    let log = move |line: &str| progress::note(form, line);
    let ready = move |address| log(&format!("listening at http://{address}"));
    Ok(serve(options, log, ready)?)
}
