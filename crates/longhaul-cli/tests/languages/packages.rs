//! The packages of `clients/`: their own tests, types, contents, and the snippets of their pages.

use crate::languages::stage::{gateway, leaves};
use crate::support::tools::{go_command, go_program, needs, run, top, typescript_package, version};
use crate::support::{Worker, skip};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The gateway's URL in the snippets.
const SHOWN: &str = "http://127.0.0.1:7070";

/// The program whose broker and gateway the packages start for their users' tests.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");

#[tokio::test]
async fn the_package_for_python_does_what_it_says() {
    if let Err(why) = version("python3", "--version") {
        return skip(&why);
    }
    let stage = gateway().await;
    let tests = ["-m", "unittest", "discover", "-t", ".", "-s", "tests"];
    let mut command = python();
    command.args(tests).env("LONGHAUL_TEST_GATEWAY", &stage.url);
    tokio::task::spawn_blocking(move || run(&mut command)).await.unwrap();
    python_snippets(&stage.url).await;
}

/// Runs the page's workers, each with the other snippets, and checks their output.
async fn python_snippets(url: &str) {
    let page = std::fs::read_to_string(top().join("clients/python/README.md")).unwrap();
    let snippet = |name: &str| snippet(&page, name).replace(SHOWN, url);
    for name in ["work", "coroutine"] {
        let mut worker = tokio::process::Command::from(python());
        worker.args(["-c", &snippet(name)]).stderr(Stdio::piped()).kill_on_drop(true);
        let mut worker = worker.spawn().unwrap();
        let lines = worker.stderr.take().unwrap();
        let mut worker = Worker::new(worker, lines);
        worker.line_with("ready").await;
        let written = tokio::task::spawn_blocking({
            let snippets = ["submit", "watch", "operate", "asyncio"].map(snippet);
            move || snippets.map(|snippet| run(python().args(["-c", &snippet])))
        });
        judge_snippets(worker, written.await.unwrap()).await;
    }
}

/// What the snippets for Python and TypeScript print, in the order of their names above; ends the worker.
async fn judge_snippets<const N: usize>(worker: Worker, written: [String; N]) {
    assert!(written[0].ends_with("\nsent to ann\n"), "{}", written[0]);
    assert!(written[1].contains(" completed\n"), "{}", written[1]);
    assert!(written[2].starts_with("paused\n"), "{}", written[2]);
    if let Some(asynchronous) = written.get(3) {
        assert_eq!(asynchronous, "['sent to ann', 'sent to bob']\n");
    }
    worker.signal(Signal::TERM);
    let (status, lines) = worker.ended().await;
    assert!(status.success(), "{status}: {lines:#?}");
}

/// It is fully typed, and only the package is installed.
#[test]
fn the_package_for_python_is_whole() {
    if let Err(why) = needs("python") {
        return skip(&why);
    }
    let folder = TempDir::new().unwrap();
    let tools = folder.path().join("tools");
    run(Command::new("python3").args(["-m", "venv"]).arg(&tools));
    let python = tools.join("bin/python");
    let install =
        ["-m", "pip", "install", "--quiet", "mypy==2.4.1", "build==1.6.1", "pytest==8.4.2"];
    run(Command::new(&python).args(install));
    let cache = folder.path().join("mypy");
    let mut check = Command::new(&python);
    check.args(["-m", "mypy", "--strict", "longhaul", "tests", "--cache-dir"]).arg(cache);
    run(check.current_dir(top().join("clients/python")));
    // The build leaves files beside its sources.
    let copy = folder.path().join("python");
    run(Command::new("cp").arg("-r").arg(top().join("clients/python")).arg(&copy));
    run(Command::new(&python).args(["-m", "build", "--wheel"]).current_dir(&copy));
    let wheel = format!("dist/longhaul-{}-py3-none-any.whl", env!("CARGO_PKG_VERSION"));
    let listed =
        run(Command::new(&python).args(["-m", "zipfile", "-l", &wheel]).current_dir(&copy));
    let files = [
        "longhaul/py.typed",
        "longhaul/types.py",
        "longhaul/conformance.py",
        "longhaul/testing.py",
        "LICENSE",
    ];
    for file in files {
        assert!(listed.contains(file), "{file}: {listed}");
    }
    assert!(!listed.contains("tests/"), "{listed}");
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--no-deps", &wheel])
        .current_dir(&copy));
    run(Command::new(&python)
        .args(["-c", "import longhaul.conformance"])
        .current_dir(folder.path()));
    let page = std::fs::read_to_string(copy.join("README.md")).unwrap();
    std::fs::write(folder.path().join("test_page.py"), snippet(&page, "pytest")).unwrap();
    let mut test = Command::new(&python);
    test.args(["-m", "pytest", "test_page.py"]).env("LONGHAUL_PROGRAM", PROGRAM);
    let tested = run(test.current_dir(folder.path()));
    assert!(tested.contains("1 passed"), "{tested}");
}

#[tokio::test]
async fn the_package_for_typescript_does_what_it_says_and_is_whole() {
    if let Err(why) = needs("typescript") {
        return skip(&why);
    }
    let stage = gateway().await;
    let url = stage.url.clone();
    let folder = TempDir::new().unwrap();
    let built = folder.path().join("package");
    let pack = tokio::task::spawn_blocking({
        let built = built.clone();
        move || {
            typescript_package(&built);
            run(Command::new("npm")
                .arg("test")
                .env("LONGHAUL_TEST_GATEWAY", url)
                .current_dir(&built));
            run(Command::new("npm")
                .args(["pack", "--json", "--ignore-scripts"])
                .current_dir(&built))
        }
    });
    let packed: Value = serde_json::from_str(&pack.await.unwrap()).unwrap();
    let files: Vec<&str> = packed[0]["files"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|file| file["path"].as_str())
        .collect();
    for file in [
        "LICENSE",
        "README.md",
        "package.json",
        "dist/index.js",
        "dist/index.d.ts",
        "dist/conformance.js",
        "dist/testing.js",
    ] {
        assert!(files.contains(&file), "{file}: {files:?}");
    }
    let strange = |file: &&&str| file.starts_with("src") || file.starts_with("test");
    assert_eq!(files.iter().find(strange), None);
    typescript_snippets(&built, &stage.url).await;
}

async fn typescript_snippets(package: &Path, url: &str) {
    let page = std::fs::read_to_string(package.join("README.md")).unwrap();
    let project = package.join("snippets");
    std::fs::create_dir_all(project.join("node_modules")).unwrap();
    std::os::unix::fs::symlink(package, project.join("node_modules/longhaul")).unwrap();
    for name in ["submit", "watch", "operate", "work", "testing"] {
        let text = snippet(&page, name).replace(SHOWN, url);
        std::fs::write(project.join(format!("{name}.mts")), text).unwrap();
    }
    let compiler = package.join("node_modules/.bin/tsc");
    let strict = ["--strict", "--target", "es2023", "--module", "nodenext", "--types", "node"];
    let types = package.join("node_modules/@types");
    let mut compile = Command::new(compiler);
    compile.args(strict).arg("--typeRoots").arg(types).args([
        "submit.mts",
        "watch.mts",
        "operate.mts",
        "work.mts",
        "testing.mts",
    ]);
    run(compile.current_dir(&project));
    let node = |name: &str| {
        let mut command = Command::new("node");
        command.arg(format!("{name}.mjs")).current_dir(&project);
        command
    };
    let mut test = node("testing");
    test.env("LONGHAUL_PROGRAM", PROGRAM);
    let tested = tokio::task::spawn_blocking(move || run(&mut test)).await.unwrap();
    assert!(tested.contains("pass 1"), "{tested}");
    let mut worker = tokio::process::Command::from(node("work"));
    worker.stdout(Stdio::piped()).kill_on_drop(true);
    let mut worker = worker.spawn().unwrap();
    let lines = worker.stdout.take().unwrap();
    let mut worker = Worker::new(worker, lines);
    worker.line_with("ready").await;
    let mut commands = ["submit", "watch", "operate"].map(node);
    let written = tokio::task::spawn_blocking(move || commands.each_mut().map(run));
    judge_snippets(worker, written.await.unwrap()).await;
}

#[tokio::test]
async fn the_package_for_go_does_what_it_says() {
    if let Err(why) = version("go", "version") {
        return skip(&why);
    }
    let module = top().join("clients/go");
    let page = std::fs::read_to_string(module.join("README.md")).unwrap();
    let checks = tokio::task::spawn_blocking(move || {
        let mut format = Command::new("gofmt");
        assert_eq!(
            run(format.arg("-l").arg(".").arg("../../examples/go").current_dir(&module)),
            ""
        );
        run(go_command(&module).args(["vet", "./..."]));
        run(go_command(&module).args(["test", "./..."]).env_remove("LONGHAUL_TOKEN"));
        run(go_command(&top().join("examples/go")).args(["vet", "./..."]));
    });
    checks.await.unwrap();
    let stage = gateway().await;
    let folders = ["work", "submit"].map(|name| {
        let folder = TempDir::new().unwrap();
        let text = snippet(&page, name).replace(SHOWN, &stage.url);
        std::fs::write(folder.path().join("main.go"), text).unwrap();
        let manifest = std::fs::read_to_string(top().join("examples/go/go.mod")).unwrap();
        let package = top().join("clients/go");
        let manifest = manifest.replace("../../clients/go", package.to_str().unwrap());
        std::fs::write(folder.path().join("go.mod"), manifest).unwrap();
        folder
    });
    let built = folders.each_ref().map(|folder| go_program(folder.path(), ".", folder.path()));
    let [work, submit] = built.map(|program| {
        let mut command = tokio::process::Command::new(program);
        command.env_remove("LONGHAUL_TOKEN").stdin(Stdio::null()).kill_on_drop(true);
        command
    });
    let mut worker = { work }.stderr(Stdio::piped()).spawn().unwrap();
    let lines = worker.stderr.take().unwrap();
    let mut worker = Worker::new(worker, lines);
    worker.line_with("ready").await;
    let output = { submit }.output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "sent to ann\n", "{output:?}");
    leaves(worker).await;
}

/// With the first test of its page, which is also on the page about tests.
#[test]
fn the_module_for_junit_does_what_it_says() {
    for program in ["java", "mvn"] {
        if let Err(why) = version(program, "-version") {
            return skip(&why);
        }
    }
    let page = |path: &str| std::fs::read_to_string(top().join(path)).unwrap();
    let first = snippet(&page("clients/junit/README.md"), "junit");
    assert_eq!(first, snippet(&page("docs/embedded.md"), "junit"));
    // The build leaves files beside its sources.
    let folder = TempDir::new().unwrap();
    let module = folder.path().join("junit");
    run(Command::new("cp").arg("-r").arg(top().join("clients/junit")).arg(&module));
    std::fs::write(module.join("src/test/java/OrdersTest.java"), first).unwrap();
    let mut test = Command::new("mvn");
    test.args(["--batch-mode", "-Dstyle.color=never", "verify"]).env("LONGHAUL_PROGRAM", PROGRAM);
    let tested = run(test.current_dir(&module));
    assert!(tested.contains("-- in OrdersTest\n"), "{tested}");
}

/// The fenced block behind the line `<!-- test: name -->`.
fn snippet(page: &str, name: &str) -> String {
    let mark = format!("<!-- test: {name} -->\n```");
    let (_, behind) = page.split_once(&mark).unwrap_or_else(|| panic!("no snippet {name}"));
    let (_, text) = behind.split_once('\n').unwrap();
    text.split_once("\n```").unwrap().0.to_owned()
}

fn python() -> Command {
    let mut command = Command::new("python3");
    command.current_dir(top().join("clients/python")).stdin(Stdio::null());
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("LONGHAUL_TOKEN");
    command
}
