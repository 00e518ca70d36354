//! Endpoints of the service.

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::sync::SemaphorePermit;

use crate::{
    app::{App, Opened, Served},
    arrow,
    batch::Nodes,
    document::Reply,
    failure::{Failure, refuse},
    links::{self, LinkQuestion},
    new_nodes,
    question::{Question, Resolved, Subject},
};

/// Endpoints that are open without the token. The others are named in metrics, too.
const OPEN: [&str; 3] = ["/", "/healthz", "/openapi.json"];
const CLOSED: [&str; 7] = [
    "/v1/predict",
    "/v1/links/top",
    "/v1/links/score",
    "/v1/links/embed",
    "/v1/events",
    "/v1/reload",
    "/metrics",
];

/// Routes of the service.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(|| async { typed("text/html; charset=utf-8", include_str!("page.html")) }))
        .route("/openapi.json", get(|| async { typed("application/json", include_str!("openapi.json")) }))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/predict", post(predict))
        .route("/v1/links/top", post(|state, request| ask_links(state, request, LinkQuestion::Top)))
        .route("/v1/links/score", post(|state, request| ask_links(state, request, LinkQuestion::Score)))
        .route("/v1/links/embed", post(|state, request| ask_links(state, request, LinkQuestion::Embed)))
        .route("/v1/events", post(add_events))
        .route("/v1/reload", post(reload))
        .fallback(|| async {
            let fix = "GET /openapi.json lists the endpoints";
            Failure::new(StatusCode::NOT_FOUND, "address", "there is no such endpoint", fix)
        })
        .method_not_allowed_fallback(|| async {
            let fix = "GET /openapi.json lists the methods";
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method", "the endpoint has another one", fix)
        })
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

/// A body of a media type.
fn typed(kind: &'static str, body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], body.into()).into_response()
}

/// A JSON document.
fn document(value: &Value) -> Response {
    typed("application/json", value.to_string())
}

/// Checks the token and counts the request.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let known = OPEN.iter().chain(&CLOSED).find(|path| **path == request.uri().path());
    let endpoint = known.copied().unwrap_or("other");
    let given = request.headers().get(header::AUTHORIZATION);
    let is_allowed = OPEN.contains(&endpoint)
        || app.options.token.as_ref().is_none_or(|token| given.is_some_and(|it| token.is_in(it.as_bytes())));
    app.metrics.in_flight.inc();
    let counted = InFlight(&app);
    let response = if is_allowed {
        next.run(request).await
    } else {
        let why = "the header Authorization does not have the service's token";
        Failure::new(StatusCode::UNAUTHORIZED, "token", why, "send Authorization: Bearer TOKEN")
            .into_response()
    };
    drop(counted);
    app.metrics.answered(endpoint, response.status().as_u16(), began.elapsed());
    response
}

/// A request in flight, which ends also if its client leaves.
struct InFlight<'a>(&'a App);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.metrics.in_flight.dec();
    }
}

/// The service has opened a run.
async fn health(State(app): State<Arc<App>>) -> Response {
    let opened = app.opened();
    let mut health = json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "nodes": opened.num_nodes(),
    });
    match opened {
        Opened::Nodes(Served { run: predictor, .. }) => {
            health["dataset"] = predictor.dataset().into();
            health["task"] = predictor.task().name().into();
        }
        Opened::Links(Served { run: links, .. }) => {
            health["dataset"] = links.dataset().into();
            health["task"] = "links".into();
            health["relations"] = links::relations(&links);
            if let Some((end, [events, _])) = links.end_time().zip(links.events()) {
                health["end_time"] = end.into();
                health["events"] = events.into();
            }
        }
    }
    document(&health)
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    typed(kind, app.metrics.text())
}

/// Answers for nodes.
async fn predict(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failure> {
    let in_arrow = arrow::is_accepted(request.headers());
    // before the permit, so that slow bodies do not keep other requests out
    let body = app.bodies.read(request).await?;
    let _permit = permit(&app)?;
    let Served { run: predictor, batches } = app.opened().nodes()?;
    let Resolved { subject, of, top_k } = Question::parse(&body)?.resolve(&predictor, &app.options)?;
    if in_arrow && top_k.is_some() {
        let fix = "leave out top_k, or ask for JSON";
        return Err(refuse("an answer in Arrow has all probabilities", fix));
    }
    let (nodes, answers, new);
    let reply = match subject {
        Subject::Known(known) => {
            nodes = known;
            let question = Nodes { predictor: predictor.clone(), nodes: nodes.clone(), of };
            answers = batches.ask(question).await?;
            Reply { predictor: &predictor, answers: &answers, nodes: &nodes, new: None, top_k }
        }
        Subject::New(nodes) => {
            new = new_nodes::answer(&app.new_nodes, predictor.clone(), nodes, of).await?;
            Reply { predictor: &predictor, answers: &new.answers, nodes: &[], new: Some(&new), top_k }
        }
    };
    Ok(match in_arrow {
        true => typed(arrow::MEDIA_TYPE, arrow::stream(&reply)?),
        false => typed("application/json", reply.json()),
    })
}

/// Answers by a run on links.
async fn ask_links(
    State(app): State<Arc<App>>,
    request: Request,
    question: LinkQuestion,
) -> Result<Response, Failure> {
    let in_arrow = arrow::is_accepted(request.headers());
    let body = app.bodies.read(request).await?;
    let _permit = permit(&app)?;
    let reply = question.answer(&app, app.opened().links()?, &body).await?;
    Ok(match in_arrow {
        true => typed(arrow::MEDIA_TYPE, reply.arrow()?),
        false => typed("application/json", reply.json()),
    })
}

/// Leave to answer a request.
fn permit(app: &App) -> Result<SemaphorePermit<'_>, Failure> {
    app.permits.try_acquire().map_err(|_| {
        let why = format!("{} requests are being answered", app.options.max_requests);
        let fix = "ask again, or start the service with a larger --max-requests";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "predict", why, fix)
    })
}

/// Adds events to the stream of a run on events.
async fn add_events(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failure> {
    let body = app.bodies.read(request).await?;
    let _permit = permit(&app)?;
    Ok(document(&links::events::add(&app, &body).await?))
}

/// Exchanges the run.
async fn reload(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failure> {
    app.bodies.read(request).await?;
    app.reload().await?;
    Ok(document(&json!({ "status": "reloaded", "nodes": app.opened().num_nodes() })))
}
