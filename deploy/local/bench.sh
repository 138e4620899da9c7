#!/usr/bin/env bash
# Measures Tenure on a private stack of its own; prints one JSON line per figure.
# Usage: bench.sh [ARGUMENTS OF tenure-bench]
#
# Figures go to standard output, everything else to standard error.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$LOCAL_DIR/binaries.sh"

BENCH_STATE=$REPO/.local/bench
# The bench bounds itself to five minutes; this is for the case that it hangs.
LIMIT_SECONDS=600

stop_services() {
  "$LOCAL_DIR/services.sh" wipe "$BENCH_STATE"
}

main() {
  local name mark
  for name in $(compgen -e TENURE_); do
    case $name in
      TENURE_BENCH_*) ;;
      *) unset "$name" ;;
    esac
  done
  exec 3>&1 1>&2
  "$LOCAL_DIR/setup.sh" build services
  cd "$REPO"
  heading 'building for release'
  cargo build --release --locked --workspace --bins

  heading 'measuring'
  trap stop_services EXIT
  # Numbers of two runs compare only where both begin with empty services.
  "$LOCAL_DIR/services.sh" wipe "$BENCH_STATE"
  "$LOCAL_DIR/services.sh" up "$BENCH_STATE"
  # shellcheck source=/dev/null
  source "$BENCH_STATE/services.env"
  TENURE_BIN_DIR=$(target_dir release)
  mark=$(cd "$BENCH_STATE" && pwd -P)
  export TENURE_BIN_DIR
  TENURE_INSTANCE=$mark timeout --kill-after=20 "$LIMIT_SECONDS" \
    "$TENURE_BIN_DIR/tenure-bench" "$@" </dev/null >&3
}

main "$@"
