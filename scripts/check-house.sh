#!/usr/bin/env bash
# The rules of the house that no linter knows (see docs/ARCHITECTURE.md).
# Usage: check-house.sh      prints each breach as file:line, exits 1 where there is one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

broken=0

# Tracked files, and those that are about to be.
files() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard -- "$@"
  else
    find "${@:-.}" \( -name target -o -name .local \) -prune -o -type f -print0
  fi
}

# rule TEXT PATTERN EXCEPT PATH…: no line of the paths' files matches the pattern, the
# files aside whose name matches EXCEPT.
rule() {
  local text=$1 pattern=$2 except=$3 hits
  shift 3
  hits=$(files "$@" | grep -zvE "$except" |
    xargs -0 -r grep -nIHPs -e "$pattern" /dev/null || true)
  if [[ -n $hits ]]; then
    printf 'house rule broken: %s\n%s\n' "$text" "$hits" >&2
    broken=1
  fi
}

NONE='^$'
OWN='^(\./)?scripts/check-house\.sh$'

rule 'SQL belongs to crates/core/src/storage' \
  '\bsqlx::(query|raw_sql|QueryBuilder)|\buse sqlx::.*\b(query\w*|QueryBuilder)\b' \
  '^(\./)?crates/(core/src/storage|bench)/|/tests/' crates
rule 'the broker topology belongs to crates/core/src/broker' \
  '\.(queue|exchange)_(declare|bind|delete)\(' \
  '^(\./)?crates/(core/src/broker|bench)/|/tests/' crates
rule 'binaries never import each other' \
  '^tenure-(gateway|sweeper|dead-letter-admin|cli|bench)\b' "$NONE" \
  crates/*/Cargo.toml
rule 'the domain imports nothing of ours' \
  '\buse (crate|super::super)::(storage|broker|cache|service|telemetry|config)\b' "$NONE" \
  crates/core/src/domain
rule 'no test is skipped' '^\s*#\[ignore' "$NONE" crates tests
rule 'nothing is left to do in the code' '\b(TODO|FIXME|XXX)\b' "$OWN" \
  crates tests migrations proto deploy scripts
rule 'no path of one machine' \
  '(?<![\w./-])/(root|home/\w+|Users/\w+|work)/' "$OWN|^(\./)?tests/data/" .
rule 'nothing is read from beside the repository' \
  '\.\./shared\b' "$OWN" .

if [[ $broken == 0 ]]; then echo 'house rules: kept'; fi
exit "$broken"
