# shellcheck shell=bash
# A private S3-compatible store in memory, for tests. Sourced by services.sh.
# Uses: STATE, S3_PORT. The program lies in the checkout's tools (tools.sh test).

S3_SERVER=$REPO/.local/tools/bin/moto_server
S3_BUCKET=tenure-test

s3_prepare() {
  [[ -x $S3_SERVER ]] || die 'the S3 store for tests is missing: run deploy/local/tools.sh test'
}

s3_adopt() { :; }

s3_start() {
  spawn s3 "$ME" "$STATE/logs/s3.log" "$S3_SERVER" -H 127.0.0.1 -p "$S3_PORT"
}

s3_is_ready() { python3 "$LOCAL_DIR/net.py" http "http://127.0.0.1:$S3_PORT/moto-api/data.json"; }

# It keeps nothing, so the bucket is made after each start. Any key opens it.
s3_complete() { python3 "$LOCAL_DIR/net.py" put "http://127.0.0.1:$S3_PORT/$S3_BUCKET"; }

s3_stop() { end_process s3 10 TERM; }
