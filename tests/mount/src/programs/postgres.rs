//! PostgreSQL: initdb, pgbench, a crash of the server, amcheck.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::check::Place;
use crate::command::script;

super::programs!("postgres": initdb_pgbench_crash_and_amcheck);

/// The newest installed version's programs, which Debian keeps off the path.
fn programs() -> Result<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .context("PostgreSQL is not installed: cargo xtask setup")?
        .map(|entry| entry.map(|entry| entry.path().join("bin")))
        .collect::<Result<_, _>>()?;
    versions.sort();
    versions.pop().context("no version of PostgreSQL")
}

fn initdb_pgbench_crash_and_amcheck(place: &Place) -> Result<()> {
    let bin = programs()?;
    let out = script(
        &place.dir,
        &[("BIN", &bin), ("LOGS", &place.outside)],
        r#"
        chown postgres . "$LOGS"
        cat > "$LOGS/run.sh" <<'END'
set -euo pipefail
export PATH="$BIN:$PATH" PGDATA="$PWD/data" PGDATABASE=postgres LC_ALL=C
# A socket's path must be short.
PGHOST=$(mktemp -d /tmp/pg-XXXXXX); export PGHOST
trap 'pg_ctl stop -m immediate >/dev/null 2>&1 || true; rm -rf "$PGHOST"' EXIT
initdb -k -A trust >/dev/null
cat >> data/postgresql.conf <<CONF
listen_addresses = ''
unix_socket_directories = '$PGHOST'
max_wal_size = 64MB
checkpoint_timeout = 30s
shared_buffers = 32MB
CONF
start() { pg_ctl start -w -t 120 -l "$LOGS/server.log" >/dev/null; }
check() { pg_amcheck --all --install-missing --heapallindexed --checkunique 2>/dev/null ||
          pg_amcheck --all --install-missing --heapallindexed; }
start
pgbench -q -i -s 3 2>/dev/null
pgbench -n -c 4 -j 2 -T 8 >"$LOGS/pgbench.out" 2>&1
check
psql -qAt -c 'CREATE TABLE before AS SELECT count(*) AS n FROM pgbench_history'
# The server dies with work in flight; its log must bring everything back.
pgbench -n -c 4 -j 2 -T 30 >/dev/null 2>&1 & load=$!
sleep 3
kill -9 "$(head -1 data/postmaster.pid)"
wait $load 2>/dev/null || true
sleep 1
# Nobody may have reaped the dead server yet, which would then pass for running.
rm -f data/postmaster.pid "$PGHOST"/.s.PGSQL.*
start
check
psql -qAt -c 'SELECT sum(delta) = (SELECT sum(tbalance) FROM pgbench_tellers) FROM pgbench_history'
psql -qAt -c 'SELECT (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)'
psql -qAt -c 'SELECT (SELECT count(*) FROM pgbench_history) >= n FROM before'
pg_ctl stop -m fast >/dev/null
pg_checksums --check >/dev/null
END
        env BIN="$BIN" LOGS="$LOGS" runuser -u postgres -- bash "$LOGS/run.sh" || {
            tail -n 20 "$LOGS/server.log" "$LOGS/pgbench.out" >&2 || true; exit 1; }
        rm -r data
        "#,
    )?;
    ensure!(out == "t\nt\nt\n", "{out}");
    Ok(())
}
