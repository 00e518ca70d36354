//! Tables and other sources in object storage by the command: S3 as moto serves it, the other
//! services as small servers imitate them, with settings and errors.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use crate::common::{Outcome, Sandbox};
use crate::server;
use crate::server::{Reply, Server};

const NODES: &str = "id,age\nx,1\ny,2\nz,3\n";
const EDGES: [&str; 2] = ["a,b\nx,y\ny,z\n", "a,b\nz,x\n"];

/// Files of the tests as they are imported from the sandbox.
fn expected(sandbox: &Sandbox) -> Vec<u8> {
    sandbox.write("nodes.csv", NODES);
    sandbox.write("edges/part-1.csv", EDGES[0]);
    sandbox.write("edges/part-2.csv", EDGES[1]);
    sandbox.ok("import tables expected --nodes nodes.csv --id id --edges edges --src a --dst b --name test");
    sandbox.read("expected/graphmill.json")
}

/// Import of the tables below `base` with these settings.
fn import(sandbox: &Sandbox, to: &str, base: &str, edges: &str, settings: &[(&str, String)]) -> Outcome {
    let args = format!(
        "import tables {to} --nodes {base}/nodes.csv --id id --edges {base}/{edges} --src a --dst b --name \
         test"
    );
    run(sandbox, args, settings)
}

/// The program with these arguments and settings.
fn command(sandbox: &Sandbox, args: &str, settings: &[(&str, String)]) -> Command {
    let mut command = sandbox.command(args);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"] {
        command.env_remove(name);
    }
    command.envs(settings.iter().map(|(name, value)| (name, value)));
    command
}

/// Runs the program with these arguments and settings.
fn run(sandbox: &Sandbox, args: String, settings: &[(&str, String)]) -> Outcome {
    let output = command(sandbox, &args, settings).output().unwrap();
    Outcome {
        args,
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Server of S3, ended with the test.
struct Moto {
    child: Child,
    address: String,
}

impl Moto {
    /// Starts the server; `None` if there is no Python with moto.
    fn start() -> Option<Self> {
        let code = "import sys\nfrom werkzeug.serving import make_server\nfrom moto.server import \
                    DomainDispatcherApplication, create_backend_app\nserver = make_server('127.0.0.1', 0, \
                    DomainDispatcherApplication(create_backend_app), threaded=True)\nprint(server.port, \
                    flush=True)\nserver.serve_forever()";
        let python = env::var_os("GRAPHMILL_PYTHON").unwrap_or("python3".into());
        let mut command = Command::new(python);
        command.args(["-c", code]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
        let Ok(port) = line.trim().parse::<u16>() else {
            let _ = child.wait();
            eprintln!("skipped: python3 has no moto (pip install 'moto[server]')");
            return None;
        };
        Some(Self { child, address: format!("127.0.0.1:{port}") })
    }

    /// Stores an object, or creates a bucket.
    fn put(&self, path: &str, body: &str) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // moto recognizes the service by the credential.
        let credential = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, \
                          SignedHeaders=host, Signature=0";
        write!(
            stream,
            "PUT {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: {credential}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 "), "{path}: {answer}");
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", "key".into()),
            ("AWS_SECRET_ACCESS_KEY", "secret".into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".into()),
        ]
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn buckets_of_s3_hold_tables() {
    let Some(moto) = Moto::start() else { return };
    let sandbox = Sandbox::new();
    let expected = expected(&sandbox);
    moto.put("/bucket", "");
    moto.put("/bucket/data/nodes.csv", NODES);
    moto.put("/bucket/data/edges/part-1.csv", EDGES[0]);
    moto.put("/bucket/data/edges/part-2.csv", EDGES[1]);
    moto.put("/bucket/data/edges/_SUCCESS", "");
    let settings = moto.settings();
    for (i, edges) in ["edges", "edges/", "edges/part-*.csv"].into_iter().enumerate() {
        let to = format!("data-{i}");
        import(&sandbox, &to, "s3://bucket/data", edges, &settings).succeeded();
        assert!(sandbox.read(format!("{to}/graphmill.json")) == expected, "{edges}");
    }
    let fails = |base: &str, edges: &str, settings: &[(&str, String)], says: &str| {
        let outcome = import(&sandbox, "none", base, edges, settings);
        assert_eq!(outcome.status, Some(1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{says} is not in: {}", outcome.stderr);
        assert!(!sandbox.path("none").exists() && !sandbox.path("none.importing").exists());
    };
    fails(
        "s3://bucket/data",
        "edges/x-*.csv",
        &settings,
        "s3://bucket/data/edges/x-*.csv: objects: the bucket has",
    );
    fails(
        "s3://bucket/nothing",
        "edges",
        &settings,
        "s3://bucket/nothing/nodes.csv: objects: the bucket has no",
    );
    fails("s3://other/data", "edges", &settings, "s3://other/data/nodes.csv");
    let unencrypted: Vec<_> =
        settings.iter().filter(|(name, _)| *name != "AWS_ALLOW_HTTP").cloned().collect();
    fails(
        "s3://bucket/data",
        "edges",
        &unencrypted,
        "the address is not encrypted (http); use https, or allow",
    );
}

/// Objects below `prefix` by path, and a list of those below `edges/`.
fn answer(prefix: &str, path: &str, list: &str, request: &server::Request) -> Reply {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let path = [("%2F", "/"), ("%2E", "."), ("%2D", "-")]
        .iter()
        .fold(path.to_string(), |path, (code, character)| path.replace(code, character));
    let body = match path.strip_prefix(prefix).unwrap_or(&path) {
        "/data/nodes.csv" => NODES,
        "/data/edges/part-1.csv" => EDGES[0],
        "/data/edges/part-2.csv" => EDGES[1],
        "" | "/" if query.contains("prefix=data%2Fedges") => list,
        _ => return Reply::status(404),
    };
    Reply::file(request, body.as_bytes(), "\"one\"")
        .header("Last-Modified", "Wed, 25 Nov 2026 10:00:00 GMT")
        .header("Content-Type", "application/xml")
}

#[test]
fn other_services_hold_tables() {
    let sandbox = Sandbox::new();
    let expected = expected(&sandbox);
    let entry = |key: usize| {
        format!(
            "<Contents><Key>data/edges/part-{key}.csv</Key>\
             <LastModified>2026-11-25T10:00:00.000Z</LastModified><ETag>\"one\"</ETag>\
             <Size>{}</Size></Contents>",
            EDGES[key - 1].len()
        )
    };
    let list = format!(
        "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated>{}{}\
         </ListBucketResult>",
        entry(1),
        entry(2)
    );
    let google = Server::start(move |request, _| answer("/bucket", &request.path, &list, request));
    let settings = [
        ("GOOGLE_BASE_URL", google.url.clone()),
        ("GOOGLE_SKIP_SIGNATURE", "true".into()),
        ("GOOGLE_ALLOW_HTTP", "true".into()),
    ];
    import(&sandbox, "google", "gs://bucket/data", "edges", &settings).succeeded();
    assert!(sandbox.read("google/graphmill.json") == expected);

    let entry = |key: usize| {
        format!(
            "<Blob><Name>data/edges/part-{key}.csv</Name><Properties>\
             <Last-Modified>Wed, 25 Nov 2026 10:00:00 GMT</Last-Modified><Etag>\"one\"</Etag>\
             <Content-Length>{}</Content-Length><Content-Type>text/csv</Content-Type>\
             </Properties></Blob>",
            EDGES[key - 1].len()
        )
    };
    let list = format!(
        "<?xml version=\"1.0\"?><EnumerationResults><Blobs>{}{}</Blobs><NextMarker/></EnumerationResults>",
        entry(1),
        entry(2)
    );
    let azure = Server::start(move |request, _| answer("/bucket", &request.path, &list, request));
    let settings = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "account".into()),
        ("AZURE_STORAGE_ENDPOINT", azure.url.clone()),
        ("AZURE_SKIP_SIGNATURE", "true".into()),
        ("AZURE_ALLOW_HTTP", "true".into()),
    ];
    import(&sandbox, "azure", "az://bucket/data", "edges/part-*.csv", &settings).succeeded();
    assert!(sandbox.read("azure/graphmill.json") == expected);
    let refusing = Server::start(|_, _| Reply::status(403));
    let settings = [
        ("GOOGLE_BASE_URL", refusing.url.clone()),
        ("GOOGLE_SKIP_SIGNATURE", "true".into()),
        ("GOOGLE_ALLOW_HTTP", "true".into()),
    ];
    let outcome = import(&sandbox, "none", "gs://bucket/data", "edges", &settings);
    let says = "gs://bucket/data/nodes.csv: cannot open: the server refuses access";
    assert!(outcome.stderr.contains(says), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("set GOOGLE_APPLICATION_CREDENTIALS"), "{}", outcome.stderr);
}

/// Uncompressed tar archive of one file.
fn tar(name: &str, text: &str) -> String {
    let mut header = vec![0u8; 512];
    let fields = [(0, name), (100, "0000644"), (124, &format!("{:011o}", text.len())), (148, "        ")];
    fields.iter().for_each(|(at, field)| header[*at..at + field.len()].copy_from_slice(field.as_bytes()));
    header[156] = b'0';
    header[257..262].copy_from_slice(b"ustar");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let padding = "\0".repeat(text.len().next_multiple_of(512) - text.len() + 1024);
    format!("{}{text}{padding}", String::from_utf8(header).unwrap())
}

#[test]
fn buckets_of_s3_hold_sources_of_every_format() {
    let Some(moto) = Moto::start() else { return };
    let (sandbox, settings) = (Sandbox::new(), moto.settings());
    moto.put("/bucket", "");
    let archive = tar("net.txt", "0 1 10\n1 2 20\n2 0 30\n");
    let files = [
        ("list/edges.txt", "0 1\n1 2\n2 0\n"),
        ("list/x.csv", "1,2\n3,4\n5,6\n"),
        ("net/first.txt", "0 1 10\n1 2 20\n"),
        ("net/sub/second.txt", "2 0 30\n0 2 40\n"),
        ("net.tar", &archive),
        ("bad/edges.txt", "0 1\nx y\n"),
    ];
    for (name, text) in files {
        sandbox.write(name, text);
        moto.put(&format!("/bucket/sets/{name}"), text);
    }
    moto.put("/bucket/sets/net/", "");
    // A file with a file of the options, a directory with directories, and an archive.
    for (i, args) in [
        "edges BASE/list/edges.txt OUT --features BASE/list/x.csv",
        "temporal BASE/net OUT",
        "temporal BASE/net/ OUT",
        "temporal BASE/net.tar OUT",
    ]
    .into_iter()
    .enumerate()
    {
        let (near, far) = (format!("near-{i}"), format!("far-{i}"));
        sandbox.ok(&format!("import {}", args.replace("BASE/", "").replace("OUT", &near)));
        let args = args.replace("BASE", "s3://bucket/sets").replace("OUT", &far);
        let outcome = run(&sandbox, format!("import {args}"), &settings).succeeded();
        assert!(outcome.stderr.contains("from s3://bucket/sets/"), "{}", outcome.stderr);
        assert_eq!(sandbox.tree(&far), sandbox.tree(&near), "{args}");
        assert!(!sandbox.path(format!("{far}.importing")).exists());
    }
    for (args, says) in [
        (
            "edges s3://bucket/sets/none.txt",
            "s3://bucket/sets/none.txt: objects: the bucket has no such object",
        ),
        ("edges s3://bucket/sets/bad/edges.txt", "error: s3://bucket/sets/bad/edges.txt: line 2: 'x'"),
        ("hgb s3://bucket/sets/net", "error: s3://bucket/sets/net: directory: there is no file node.dat"),
        ("edges ftp://host/x", "'ftp://' is not known; use one of s3://"),
    ] {
        let outcome = run(&sandbox, format!("import {args} none"), &settings);
        assert_eq!(outcome.status, Some(1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{says} is not in: {}", outcome.stderr);
        assert!(!sandbox.path("none").exists() && !sandbox.path("none.importing").exists());
    }
}

/// Google's service with objects `(key, text)`; `change` may replace a response.
fn google(
    objects: Vec<(&'static str, String)>,
    change: impl Fn(&server::Request, Reply) -> Reply + Send + 'static,
) -> (Server, Vec<(&'static str, String)>) {
    let entry = |(key, text): &(&str, String)| {
        let (time, size) = ("2026-11-25T10:00:00.000Z", text.len());
        format!(
            "<Contents><Key>{key}</Key><LastModified>{time}</LastModified><ETag>\"one\"</ETag>\
             <Size>{size}</Size></Contents>"
        )
    };
    let list = format!(
        "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated>{}\
         </ListBucketResult>",
        objects.iter().map(entry).collect::<String>()
    );
    let server = Server::start(move |request, _| {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let path = [("%2F", "/"), ("%2E", "."), ("%2D", "-")]
            .iter()
            .fold(path.to_string(), |path, (code, character)| path.replace(code, character));
        let found = objects.iter().find(|(key, _)| path == format!("/bucket/{key}"));
        let body = match (found, query.contains("prefix=")) {
            (Some((_, text)), _) => text.as_bytes(),
            (None, true) => list.as_bytes(),
            (None, false) => return Reply::status(404),
        };
        let reply =
            Reply::file(request, body, "\"one\"").header("Last-Modified", "Wed, 25 Nov 2026 10:00:00 GMT");
        change(request, reply)
    });
    let settings = vec![
        ("GOOGLE_BASE_URL", server.url.clone()),
        ("GOOGLE_SKIP_SIGNATURE", "true".into()),
        ("GOOGLE_ALLOW_HTTP", "true".into()),
    ];
    (server, settings)
}

#[test]
fn killed_copies_resume() {
    let sandbox = Sandbox::new();
    let second: String = (0..50_000).map(|i| format!("{} {} {i}\n", i % 100, i % 37)).collect();
    let files = vec![("net/a.txt", "0 1 10\n1 2 20\n".to_string()), ("net/b.txt", second)];
    files.iter().for_each(|(name, text)| sandbox.write(name, text));
    let stalls = Arc::new(AtomicBool::new(true));
    let stalled = stalls.clone();
    let (server, settings) = google(files, move |request, mut reply| {
        if !request.path.contains("b%2Etxt") || !stalled.load(Relaxed) {
            return reply;
        }
        reply.silent = Duration::from_secs(2);
        let half = reply.body.len() / 2;
        reply.cut(half)
    });
    let args = "import temporal gs://bucket/net far";
    let mut child = command(&sandbox, args, &settings).spawn().unwrap();
    let requests = |name: &str| {
        server.seen().iter().filter(|request| request.method == "GET" && request.path.contains(name)).count()
    };
    let began = Instant::now();
    while requests("b%2Etxt") == 0 {
        assert!(began.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(sandbox.path("far.importing").exists() && !sandbox.path("far").exists());
    stalls.store(false, Relaxed);
    let outcome = run(&sandbox, args.into(), &settings).succeeded();
    assert!(outcome.stderr.contains("resuming the interrupted work"), "{}", outcome.stderr);
    assert_eq!(requests("a%2Etxt"), 1, "the first object was copied again");
    sandbox.ok("import temporal net near");
    assert_eq!(sandbox.tree("far"), sandbox.tree("near"));
    assert!(!sandbox.path("far.importing").exists());
}

#[test]
fn hostile_names_and_short_objects_are_refused() {
    let sandbox = Sandbox::new();
    for name in ["net/../../evil.txt", "net/a\\..\\evil.txt", "net//etc/evil.txt"] {
        let (_server, settings) = google(vec![(name, "0 1 2\n".into())], |_, reply| reply);
        let outcome = run(&sandbox, "import temporal gs://bucket/net none".into(), &settings);
        assert_eq!(outcome.status, Some(1), "{name}: {}{}", outcome.stdout, outcome.stderr);
        let says = ["gs://bucket/net", "cannot be", "rename"];
        assert!(says.iter().all(|says| outcome.stderr.contains(says)), "{name}: {}", outcome.stderr);
        assert!(!sandbox.path("none.importing").exists() && !sandbox.path("evil.txt").exists());
    }
    let (_server, settings) = google(vec![("net/a.txt", "0 1 2\n".into())], |request, reply| {
        match request.path.contains("a%2Etxt") {
            true => reply.cut(0),
            false => reply,
        }
    });
    let outcome = run(&sandbox, "import temporal gs://bucket/net none".into(), &settings);
    assert!(outcome.stderr.contains("error: gs://bucket/net/a.txt: cannot read: "), "{}", outcome.stderr);
    assert!(!sandbox.path("none").exists() && !sandbox.path("none.importing").exists());
}
