//! SQLite with both kinds of journal.

use anyhow::{Result, ensure};

use crate::check::Place;
use crate::command::script;

super::programs!("sqlite": wal_mode, delete_mode, wal_mode_survives_a_killed_writer);

/// Two writers and a reader at once, then a vacuum; the last lines are the check's answer and the count.
fn workload(place: &Place, mode: &str) -> Result<()> {
    let text = format!(
        r#"
        sqlite3 db 'PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, writer, body);
                    CREATE INDEX i ON t(body);' >/dev/null
        write() {{
            for batch in $(seq 20); do
                {{ echo '.timeout 60000'; echo 'BEGIN IMMEDIATE;'
                   for row in $(seq 100); do
                       echo "INSERT INTO t(writer, body) VALUES($1, hex(randomblob(200)));"
                   done
                   echo 'COMMIT;'; }} | sqlite3 -bail db
            done
        }}
        write 1 & one=$!
        write 2 & two=$!
        for look in $(seq 5); do
            [ "$(sqlite3 -cmd '.timeout 60000' db 'SELECT count(*) % 100 FROM t')" = 0 ]
        done
        wait $one; wait $two
        sqlite3 db 'UPDATE t SET body = hex(randomblob(300)) WHERE id % 3 = 0; DELETE FROM t WHERE id % 5 = 0;'
        sqlite3 db 'PRAGMA integrity_check; VACUUM; PRAGMA integrity_check; SELECT count(*) FROM t;'
        "#
    );
    let out = script(&place.dir, &[], &text)?;
    ensure!(out == "ok\nok\n3200\n", "{out}");
    Ok(())
}

fn wal_mode(place: &Place) -> Result<()> {
    workload(place, "WAL")
}

fn delete_mode(place: &Place) -> Result<()> {
    workload(place, "DELETE")
}

fn wal_mode_survives_a_killed_writer(place: &Place) -> Result<()> {
    let out = script(
        &place.dir,
        &[],
        r#"
        sqlite3 db 'PRAGMA journal_mode=WAL; CREATE TABLE t(body);' >/dev/null
        for round in 1 2 3; do
            { while :; do echo 'INSERT INTO t VALUES(hex(randomblob(500)));'; done; } | sqlite3 db &
            writer=$!
            sleep 0.5
            kill -9 $writer
            wait $writer 2>/dev/null || true
            sqlite3 db 'PRAGMA integrity_check'
        done
        "#,
    )?;
    ensure!(out == "ok\nok\nok\n", "{out}");
    Ok(())
}
