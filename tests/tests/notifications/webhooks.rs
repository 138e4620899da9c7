//! Signed calls to those who may be called, and to nobody else.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tenure_tests::caller::{result, spec};
use tenure_tests::hook::Received;
use tenure_tests::v1::{ErrorClass, GetDeadLetterRequest, Job, JobSpec, SubmitJobRequest};
use tenure_tests::{
    Answer, Caller, Ear, Hook, JobState, Refusal, Stack, StackBuilder, data, environment, token,
    within,
};
use tonic::Request;

use super::BOUND;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A stack whose workers may call these hosts, and these addresses though they are inside.
pub(super) fn stack(hosts: &str, private: &str) -> StackBuilder {
    Stack::builder()
        .env("TENURE_WEBHOOKS__ALLOWED_HOSTS", hosts)
        .env("TENURE_WEBHOOKS__ALLOWED_PRIVATE", private)
        .env("TENURE_WEBHOOKS__ALLOW_HTTP", "true")
        .env("TENURE_WEBHOOKS__SECRET", SECRET)
        .env("TENURE_BACKOFF_BASE", "50ms")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
}

async fn stack_for(hook: &Hook) -> Stack {
    let address = hook.address().to_string();
    stack(&address, &address).start().await
}

fn call(url: &str) -> JobSpec {
    spec(
        "notify_webhook",
        json!({"url": url, "event": "import.finished", "data": {"rows": 3}}),
    )
}

fn url(hook: &Hook) -> String {
    format!("http://{}/hook?a=b", hook.address())
}

fn error(job: &Job) -> (&str, ErrorClass) {
    let error = job.last_error.as_ref().expect("an error");
    (error.code.as_str(), error.error_class())
}

fn verify(received: &Received) {
    Webhook::new(SECRET)
        .expect("a secret")
        .verify(&received.body, &received.headers)
        .expect("a good signature");
}

async fn failed(caller: &Caller, job_id: &str) -> Job {
    caller.wait_state(job_id, JobState::Failed, BOUND).await
}

#[tokio::test]
async fn an_allowed_receiver_gets_one_signed_call() {
    let hook = Hook::start().await;
    let stack = stack_for(&hook).await;
    let ann = stack.user("ann");
    let payload = format!(
        r#"{{"url":"{}","event":"import.finished","data":{{"sum":12345678901234567890.10}},"key":"k-1"}}"#,
        url(&hook)
    );
    let mut request = Request::new(SubmitJobRequest {
        job: Some(JobSpec {
            job_type: "notify_webhook".to_owned(),
            payload: payload.into(),
            ..JobSpec::default()
        }),
    });
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request
        .metadata_mut()
        .insert("traceparent", parent.parse().expect("a value"));
    let accepted = ann.jobs().submit_job(request).await.expect("accepted");
    let job_id = accepted.into_inner().job_id;
    let job = ann.wait_state(&job_id, JobState::Success, BOUND).await;
    assert_eq!(result(&job), json!({"status": 204}));

    let received = hook.received();
    assert_eq!(received.len(), 1, "{received:?}");
    let one = &received[0];
    verify(one);
    assert_eq!(
        (one.method.as_str(), one.path.as_str()),
        ("POST", "/hook?a=b")
    );
    assert_eq!(one.header("webhook-id"), format!("msg_{job_id}"));
    assert_eq!(one.header("content-type"), "application/json");
    assert_eq!(one.header("traceparent"), parent);
    assert!(one.header("user-agent").starts_with("tenure/"));
    let body: Value = serde_json::from_slice(&one.body).expect("JSON");
    assert_eq!(
        (&body["type"], &body["key"]),
        (&json!("import.finished"), &json!("k-1"))
    );
    let created = job.create_time.expect("a time");
    let told = chrono::DateTime::parse_from_rfc3339(body["timestamp"].as_str().expect("a time"));
    assert!((told.expect("a time").timestamp() - created.seconds).abs() <= 2);
    let text = std::str::from_utf8(&one.body).expect("a text");
    assert!(text.contains("12345678901234567890.10"), "{text}");
    assert_eq!(checked_by_the_document(one, &one.body).await, "True");
    assert_eq!(checked_by_the_document(one, b"{}").await, "False");
    let metrics = stack.worker(0).metrics().await;
    assert!(metrics.sum("tenure_webhooks_total", &[("outcome", "sent")]) >= 1.0);
}

/// What the Python of docs/NOTIFICATIONS.md says of a call with this body.
async fn checked_by_the_document(received: &Received, body: &[u8]) -> String {
    let document = environment::repository().join("docs/NOTIFICATIONS.md");
    let document = std::fs::read_to_string(document).expect("the document");
    let (_, code) = document.split_once("```python\n").expect("the code");
    let (code, _) = code.split_once("```").expect("its end");
    let headers: std::collections::BTreeMap<&str, &str> = received
        .headers
        .keys()
        .map(|name| (name.as_str(), received.header(name.as_str())))
        .collect();
    let script = format!(
        "{code}\nimport json, sys\n\
         print(is_genuine(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3].encode()))"
    );
    let python = std::env::var("TENURE_PYTHON")
        .unwrap_or_else(|_| panic!("TENURE_PYTHON must name a Python; `make test` sets it"));
    let command = tokio::process::Command::new(python)
        .args(["-c", &script, SECRET, &json!(headers).to_string()])
        .arg(std::str::from_utf8(body).expect("a text"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within("Python", BOUND, command)
        .await
        .expect("Python starts");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

#[tokio::test]
async fn a_receiver_that_asks_for_time_is_called_again_with_the_same_id() {
    let hook = Hook::start().await;
    let stack = stack_for(&hook).await;
    let ann = stack.user("ann");
    hook.next(Answer::Status(503, Some(("retry-after", "1".to_owned()))));
    hook.next(Answer::Status(500, None));
    let job_id = ann.submit_spec(call(&url(&hook))).await;
    let job = ann.wait_state(&job_id, JobState::Success, BOUND).await;
    assert_eq!((job.attempt, result(&job)), (3, json!({"status": 204})));
    let received = hook.received();
    assert_eq!(received.len(), 3);
    for one in &received {
        verify(one);
        assert_eq!(one.header("webhook-id"), format!("msg_{job_id}"));
        assert_eq!(one.body, received[0].body);
    }
    // The backoff is 50 ms here: the second was what the receiver asked for.
    let waited = received[1].at - received[0].at;
    assert!(waited >= Duration::from_millis(900), "{waited:?}");
}

#[tokio::test]
async fn redirects_are_not_followed_and_refusals_are_for_good() {
    let (hook, elsewhere) = (Hook::start().await, Hook::start().await);
    let both = format!("{},{}", hook.address(), elsewhere.address());
    let stack = stack(&both, &both).start().await;
    let ann = stack.user("ann");
    for status in [301, 302, 307, 308] {
        hook.next(Answer::Status(status, Some(("location", url(&elsewhere)))));
        let job = failed(&ann, &ann.submit_spec(call(&url(&hook))).await).await;
        assert_eq!(error(&job), ("WEBHOOK_REFUSED", ErrorClass::Permanent));
        assert_eq!(job.attempt, 1, "{status}");
    }
    for status in [400, 401, 404, 410, 422] {
        hook.next(Answer::Status(status, None));
        let job = failed(&ann, &ann.submit_spec(call(&url(&hook))).await).await;
        assert_eq!(error(&job), ("WEBHOOK_REFUSED", ErrorClass::Permanent));
        let message = job.last_error.expect("an error").message;
        assert_eq!(message, format!("the receiver answered {status}"));
    }
    assert_eq!(hook.received().len(), 9);
    assert!(elsewhere.received().is_empty(), "a redirect was followed");
}

#[tokio::test]
async fn silence_and_endless_answers_are_bounded() {
    let hook = Hook::start().await;
    let address = hook.address().to_string();
    // Nobody listens there any more.
    let closed = Ear::at("127.0.0.1:0").await.expect("a port");
    let gone = closed.address().to_string();
    drop(closed);
    let both = format!("{address},{gone}");
    let stack = stack(&both, &both)
        .env("TENURE_WEBHOOKS__TIMEOUT", "500ms")
        .start()
        .await;
    let ann = stack.user("ann");
    hook.next(Answer::Endless);
    let job_id = ann.submit_spec(call(&url(&hook))).await;
    ann.wait_state(&job_id, JobState::Success, BOUND).await;

    hook.next(Answer::Silence);
    for url in [url(&hook), format!("http://{gone}/")] {
        let once = JobSpec {
            max_attempts: 1,
            ..call(&url)
        };
        let job = failed(&ann, &ann.submit_spec(once).await).await;
        assert_eq!(error(&job), ("WEBHOOK_UNAVAILABLE", ErrorClass::Temporary));
        let message = job.last_error.expect("an error").message;
        assert!(!message.contains("127.0.0.1"), "{message}");
    }
    assert_eq!(hook.received().len(), 2);
}

#[tokio::test]
async fn without_a_set_up_nothing_is_called() {
    let hook = Hook::start().await;
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let job = failed(&ann, &ann.submit_spec(call(&url(&hook))).await).await;
    assert_eq!(error(&job), ("WEBHOOK_BLOCKED", ErrorClass::Permanent));
    let message = job.last_error.expect("an error").message;
    assert!(message.contains("webhooks.allowed_hosts"), "{message}");
    assert!(hook.received().is_empty());
}

/// The targets of the list, and this machine in other words, at a port that somebody
/// listens on.
fn targets(port: u16) -> Vec<String> {
    let list = String::from_utf8(data::bytes("urls/ssrf_targets.txt")).expect("a text");
    let mut targets: Vec<String> = list.lines().map(ToOwned::to_owned).collect();
    assert_eq!(targets.len(), 12);
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        // It is allowed by name, so it is looked up; what it leads to is not.
        "localhost",
        "LOCALHOST",
    ] {
        targets.push(format!("http://{host}:{port}/"));
    }
    targets
}

#[tokio::test]
async fn no_target_inside_is_ever_contacted() {
    let own = Ear::at("127.0.0.1:0").await.expect("a port");
    let port = own.address().port();
    let mut ears = vec![own];
    // The ports of the list, as far as they can be had here.
    for address in ["127.0.0.1:80", "127.0.0.1:8080", "127.0.0.1:21", "[::1]:80"] {
        ears.extend(Ear::at(address).await);
    }
    ears.extend(Ear::at(&format!("[::1]:{port}")).await);
    let hosts = format!("*,*:8080,*:{port},localhost:{port},localhost:8080");
    // Another port of this machine may be called; this one may not.
    let stack = stack(&hosts, "127.0.0.1:1")
        .dead_letter_admin()
        .start()
        .await;
    let (ann, letters) = (stack.user("ann"), stack.dead_letters());
    for target in targets(port) {
        let status = match ann.try_submit(call(&target)).await {
            Ok(accepted) => {
                let job = failed(&ann, &accepted.job_id).await;
                assert_eq!(
                    error(&job),
                    ("WEBHOOK_BLOCKED", ErrorClass::Permanent),
                    "{target}"
                );
                assert_eq!(job.attempt, 1, "{target}");
                let request = GetDeadLetterRequest {
                    dead_letter_id: accepted.job_id,
                };
                let letter = letters.dead_letters().get_dead_letter(request).await;
                let letter = letter.expect("a letter").into_inner().dead_letter;
                let why = letter.expect("a letter").error.expect("an error");
                assert_eq!(why.code, "WEBHOOK_BLOCKED", "{target}");
                continue;
            }
            Err(status) => status,
        };
        let plain = ["http:", "https:"]
            .iter()
            .any(|scheme| target.starts_with(scheme));
        assert!(
            !plain || target.contains('@'),
            "{target} is refused at submit"
        );
        assert!(
            Refusal::of(&status).names("job.payload.url"),
            "{target}: {status:?}"
        );
        assert!(
            !format!("{status:?}").contains("secret"),
            "{target}: {status:?}"
        );
    }

    // One that went round the gateway: the worker does not call it either.
    let target = format!("http://user:secret@127.0.0.1:{port}/");
    let payload = json!({"url": target, "event": "e", "data": {}}).to_string();
    let job_id = stack.insert_job("ann", "notify_webhook", &payload).await;
    let job = failed(&ann, &job_id).await;
    assert_eq!(error(&job), ("WEBHOOK_BLOCKED", ErrorClass::Permanent));
    assert!(!format!("{:?}", job.last_error).contains("secret"));

    let said = refused_by_the_command_line(&stack, &target).await;
    assert!(
        said.contains("payload.url") && !said.contains("secret"),
        "{said}"
    );
    for process in stack.all() {
        assert!(!process.log().contains("secret"), "{}", process.name());
    }
    for ear in ears {
        assert_eq!(ear.heard(), 0, "{} was contacted", ear.address());
    }
}

/// What `tenure submit` says about a webhook to this address.
async fn refused_by_the_command_line(stack: &Stack, target: &str) -> String {
    let payload = json!({"url": target, "event": "e", "data": {}}).to_string();
    let command = tokio::process::Command::new(environment::program("tenure"))
        .args(["submit", "notify_webhook", "--payload", &payload])
        .env_clear()
        .envs(environment::kept())
        .env(
            "TENURE_GATEWAY",
            format!("http://{}", stack.gateway(0).grpc()),
        )
        .env("TENURE_TOKEN", token::token("ann", &["submitter"]))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within("tenure submit", BOUND, command)
        .await
        .expect("tenure starts");
    assert!(!output.status.success());
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
