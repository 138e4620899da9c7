#!/usr/bin/env bash
# Shows the main job on real input: starts everything, imports a file of 3,376 rows and
# a file with mistakes, submits the first once more, and stops everything.
# Usage: demo.sh
#
# It works in .local/demo, so a stack that `make up` started stays as it is.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$LOCAL_DIR/binaries.sh"
source "$LOCAL_DIR/paths.sh"

DEMO_STATE=$REPO/.local/demo
FINISHED=no

# Runs at every exit, also after Ctrl-C: nothing that was started stays.
clean_up() {
  local status=$?
  trap - EXIT
  # A second Ctrl-C must not keep it from stopping what runs.
  trap '' INT TERM HUP
  if [[ $FINISHED == yes ]]; then
    heading 'Stop everything'
    "$LOCAL_DIR/stack.sh" wipe "$DEMO_STATE" || status=1
  else
    warn "the demo did not finish; stopping what it started (logs stay in $DEMO_STATE/logs)"
    "$LOCAL_DIR/stack.sh" down "$DEMO_STATE" || true
    [[ $status != 0 ]] || status=1
  fi
  if [[ $status == 0 ]]; then heading "The demo ran in $SECONDS s"; fi
  exit "$status"
}

# tenure ARGUMENTS…: the command line, shown and run; its output is also in OUTPUT.
tenure() {
  printf '\n$ tenure %s\n' "$*"
  "$BIN/tenure" "$@" | tee "$OUTPUT"
}

# as_operator ARGUMENTS…: the same for an operator.
as_operator() {
  local TENURE_TOKEN=$TENURE_OPERATOR_TOKEN
  export TENURE_TOKEN
  tenure "$@"
}

# shown_job: the id of the job that the last command printed.
shown_job() {
  local id
  id=$(sed -n 's/^job  *\([0-9a-f-]\{36\}\)$/\1/p' "$OUTPUT" | head -n 1)
  [[ -n $id ]] || die 'the command printed no job'
  echo "$id"
}

# expect JOB ACCEPTED REJECTED: what the demo promises is checked, not only shown.
expect() {
  "$BIN/tenure" get "$1" -o json | python3 -c '
import json, sys
job = json.load(sys.stdin)
result = job["result"] or {}
found = (job["state"], result.get("rows_accepted"), result.get("rows_rejected"))
wanted = ("success", int(sys.argv[1]), int(sys.argv[2]))
if found != wanted:
    sys.exit(f"the demo expected {wanted} and found {found}")
' "$2" "$3"
}

# stored_rows JOB: asked of the database itself. psql takes the password from the
# environment, since everybody can read its arguments.
stored_rows() {
  [[ $DATABASE_URL =~ ^postgres://(.+):(.+)@(.+):([0-9]+)/(.+)$ ]] || die 'DATABASE_URL is odd'
  PGUSER=${BASH_REMATCH[1]} PGPASSWORD=${BASH_REMATCH[2]} PGHOST=${BASH_REMATCH[3]} \
    PGPORT=${BASH_REMATCH[4]} PGDATABASE=${BASH_REMATCH[5]} \
    "$(find_postgres)/psql" -X -At -c "select count(*) from import_rows where job_id = '$1'"
}

run_demo() {
  local airports contacts payload again rows
  # A state that a killed demo left is of no use.
  "$LOCAL_DIR/stack.sh" wipe "$DEMO_STATE" >/dev/null
  heading 'Start PostgreSQL, RabbitMQ, Redis and the four binaries'
  "$LOCAL_DIR/stack.sh" up "$DEMO_STATE"
  # shellcheck source=/dev/null
  source "$DEMO_STATE/env"
  BIN=$(target_dir debug)
  OUTPUT=$DEMO_STATE/output
  cd "$REPO"

  heading 'Import 3,376 airports'
  tenure import examples/airports.csv --dataset airports --dedupe-key demo-airports
  airports=$(shown_job)
  expect "$airports" 3376 0

  heading 'Look at what came in'
  tenure datasets
  tenure rows airports --limit 3

  heading 'Import a file with mistakes: good rows go in, bad ones are listed'
  tenure import examples/contacts-with-mistakes.csv --schema examples/contacts.schema.json \
    --rejects "$DEMO_STATE/rejects.csv" --report "$DEMO_STATE/report.html"
  contacts=$(shown_job)
  expect "$contacts" 6 8

  heading 'Submit the first import once more: the same job answers'
  payload=$("$BIN/tenure" get "$airports" -o json |
    python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["payload"], separators=(",", ":")))')
  tenure submit import_csv --payload "$payload" --dedupe-key demo-airports
  again=$(shown_job)
  [[ $again == "$airports" ]] || die "the second submit made job $again instead of naming $airports"

  heading 'Look at the job, at all jobs, and at the queues'
  tenure get "$airports"
  tenure list
  as_operator queues

  rows=$(stored_rows "$airports")
  printf '\nrows of the airports in the database: %s\n' "$rows"
  [[ $rows == 3376 ]] || die 'there should be 3376'
  FINISHED=yes
}

main() {
  mkdir -p "$REPO/.local"
  exec 8>"$REPO/.local/demo.lock"
  flock -n 8 || die 'another demo runs in this checkout'
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  run_demo
}

main "$@"
