//! A Python virtual environment.

use anyhow::{Result, ensure};

use crate::check::Place;
use crate::command::script;

super::programs!("python": a_virtual_environment_works);

fn a_virtual_environment_works(place: &Place) -> Result<()> {
    let out = script(
        &place.dir,
        &[],
        r#"
        /usr/bin/python3 -m venv env
        . env/bin/activate
        pip --version >/dev/null
        # A package as an index would hand it out; nothing is downloaded.
        python - <<'END'
import zipfile
with zipfile.ZipFile("greeting-1-py3-none-any.whl", "w") as wheel:
    info = "greeting-1.dist-info"
    wheel.writestr("greeting/__init__.py", "def greet(): return 'hello from the mount'\n")
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", "")
END
        pip install -q --no-index ./greeting-1-py3-none-any.whl
        python -m compileall -q env/lib
        python - <<'END'
import dbm.dumb, greeting, mmap, multiprocessing, os, shelve, shutil, sqlite3, tempfile, zipfile
assert os.path.realpath(greeting.__file__).startswith(os.path.realpath("env"))
with tempfile.TemporaryDirectory(dir=".") as work:
    with shelve.open(os.path.join(work, "shelf")) as shelf:
        shelf.update({str(n): list(range(n)) for n in range(300)})
    with shelve.open(os.path.join(work, "shelf")) as shelf:
        assert shelf["299"] == list(range(299))
    archive = shutil.make_archive(os.path.join(work, "lib"), "zip", "env/lib")
    with zipfile.ZipFile(archive) as z:
        assert z.testzip() is None
    with open(os.path.join(work, "map"), "w+b") as f:
        f.truncate(1 << 20)
        with mmap.mmap(f.fileno(), 0) as m:
            m[1000:1005] = b"bytes"
        f.seek(1000)
        assert f.read(5) == b"bytes"
    with multiprocessing.Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
print(greeting.greet())
END
        "#,
    )?;
    ensure!(out == "hello from the mount\n", "{out}");
    Ok(())
}
