//! Tokens: both ways to get one, in the versions that support them.

use std::collections::HashMap;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State as Extract};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::routes::{answer, refuse};
use super::{CLIENT_ID, CLIENT_SECRET, Shared, State, lock};

/// Returns the operations that issue tokens.
pub fn router() -> Router<Shared> {
    Router::new().route("/api/v2/token", post(v2)).route("/api/v1/token", post(v1))
}

/// Refuses a request without a valid token.
pub async fn authorised(Extract(state): Extract<Shared>, request: Request, next: Next) -> Response {
    let given = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let now = Instant::now();
    let good = given
        .and_then(|given| given.strip_prefix("Bearer "))
        .is_some_and(|token| lock(&state).tokens.iter().any(|(known, until)| known == token && *until > now));
    if good { next.run(request).await } else { refuse(401, "token is not valid") }
}

/// Creates a token that contains its expiry, as a real one does; the official client reads it.
fn new_token(state: &mut State) -> String {
    let until = jiff::Timestamp::now().as_second() + i64::try_from(state.token_life.as_secs()).unwrap_or(0);
    let claims = json!({"exp": until, "jti": format!("{:x}", fastrand::u64(..))}).to_string();
    let token = format!("e30.{}.c2lnbmF0dXJl", STANDARD.encode(claims).trim_end_matches('='));
    let until = Instant::now() + state.token_life;
    state.tokens.push((token.clone(), until));
    token
}

async fn v2(Extract(state): Extract<Shared>, body: String) -> Response {
    let mut state = lock(&state);
    if state.minor < 24 {
        return refuse(404, "not found");
    }
    let wanted = format!("grant_type=client_credentials&client_id={CLIENT_ID}&client_secret={CLIENT_SECRET}");
    if body != wanted {
        let error = json!({"error": "invalid_client", "error_description": "unknown client or wrong secret"});
        return answer(401, error);
    }
    let token = new_token(&mut state);
    let life = state.token_life.as_secs();
    answer(200, json!({"access_token": token, "token_type": "Bearer", "expires_in": life}))
}

/// Keys are case-insensitive, as in the real one.
async fn v1(Extract(state): Extract<Shared>, axum::Json(body): axum::Json<Value>) -> Response {
    let mut state = lock(&state);
    let fields: HashMap<String, String> = body
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.to_lowercase(), value.as_str()?.to_owned())))
        .collect();
    let is = |key: &str, value: &str| fields.get(key).is_some_and(|given| given == value);
    let good = match fields.get("granttype").map(String::as_str) {
        Some("client_credentials") if state.minor < 20 => {
            return refuse(400, "unknown grant type client_credentials");
        }
        Some("client_credentials") => is("clientid", CLIENT_ID) && is("clientsecret", CLIENT_SECRET),
        Some("app_token") => is("appid", CLIENT_ID) && is("appsecret", CLIENT_SECRET),
        _ => return refuse(400, "unknown grant type"),
    };
    if !good {
        return refuse(400, "wrong application id or secret");
    }
    let token = new_token(&mut state);
    let mut body = json!({"accessToken": token});
    if state.minor >= 24 {
        body["expiresIn"] = json!(state.token_life.as_secs());
    }
    answer(200, body)
}
