//! Files that are not a complete export: each is refused with a reason, and nothing is written.
use super::*;
use serde_json::Value;

/// The lines of an export with records of each kind.
fn lines(stage: &Stage) -> Vec<String> {
    let (engine, client) = (&stage.engine, stage.engine.client());
    fill(stage);
    let task = client.submission(FROM, &Text("tick".to_owned()));
    let schedule = crate::Schedule::cron("0 0 1 1 *");
    engine.run(client.queue(FROM).schedules().create("yearly", schedule, task)).unwrap();
    engine.run(async {
        let mut export = client.queue(FROM).export().await.unwrap();
        write(&mut export, &stage.file()).await
    });
    let text = std::fs::read_to_string(stage.file()).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for kind in ["queue", "task", "letter", "schedule", "end"] {
        assert!(lines.iter().any(|line| kind_of(line) == kind), "{kind}");
    }
    lines
}

fn kind_of(line: &str) -> String {
    serde_json::from_str::<Value>(line).unwrap()["record"].as_str().unwrap().to_owned()
}

/// Imports a file, and returns why it was refused.
fn refused(stage: &Stage, content: impl AsRef<[u8]>) -> String {
    let client = stage.engine.client();
    std::fs::write(stage.file(), content).unwrap();
    let error = stage.engine.run(client.queue(TO).import(&stage.file())).unwrap_err();
    assert!(stage.statuses(TO).is_empty());
    let queue = client.queue(TO);
    assert_eq!(stage.engine.run(queue.settings()).unwrap().version, 0);
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |it| it.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn a_file_that_is_cut_short_is_refused_wherever_the_cut_is() {
    let stage = Stage::new();
    let lines = lines(&stage);
    for kept in 0..lines.len() {
        let whole = lines[..kept].join("\n");
        let error = refused(&stage, &whole);
        let expected = if kept == 0 { "does not begin with a queue" } else { "its end is missing" };
        assert!(error.contains(expected), "{kept} lines: {error}");
        let next = &lines[kept];
        for cut in [1, next.len() / 2, next.len() - 1] {
            let text = format!("{whole}\n{}", &next[..cut]).trim_start().to_owned();
            let error = refused(&stage, text);
            assert!(error.contains(&format!("line {}", kept + 1)), "{kept} lines: {error}");
        }
    }
    // The complete file is accepted after all of them.
    std::fs::write(stage.file(), lines.join("\n")).unwrap();
    let imported = stage.engine.run(stage.engine.client().queue(TO).import(&stage.file())).unwrap();
    assert_eq!((imported.open, imported.over, imported.letters, imported.schedules), (6, 5, 1, 1));
}

#[test]
fn a_file_with_other_records_than_it_says_is_refused() {
    let stage = Stage::new();
    let lines = lines(&stage);
    let expected = ", but its end says";
    for kind in ["task", "letter", "schedule"] {
        let at = lines.iter().position(|line| kind_of(line) == kind).unwrap();
        let mut without = lines.clone();
        without.remove(at);
        let mut twice = lines.clone();
        twice.insert(at, lines[at].clone());
        for changed in [without, twice] {
            let error = refused(&stage, changed.join("\n"));
            assert!(error.contains(expected), "{kind}: {error}");
        }
    }
    let behind = format!("{}\n{}", lines.join("\n"), lines[1]);
    assert!(refused(&stage, behind).contains("continues after its end"));
    let two = format!("{}\n{}", lines[0], lines.join("\n"));
    assert!(refused(&stage, two).contains("a second queue"));
    assert!(refused(&stage, lines[1..].join("\n")).contains("does not begin with a queue"));
}

#[test]
fn a_file_of_another_form_is_refused() {
    let stage = Stage::new();
    let lines = lines(&stage);
    let changed = |at: usize, name: &str, value: Value| {
        let mut record: Value = serde_json::from_str(&lines[at]).unwrap();
        record[name] = value;
        let mut lines = lines.clone();
        lines[at] = record.to_string();
        lines.join("\n")
    };
    let task = lines.iter().position(|line| kind_of(line) == "task").unwrap();
    let letter = lines.iter().position(|line| kind_of(line) == "letter").unwrap();
    for (content, expected) in [
        (String::new(), "does not begin with a queue"),
        ("\n".to_owned(), "line 1"),
        ("id,state\n1,open\n".to_owned(), "line 1"),
        ("[]".to_owned(), "line 1"),
        ("{\"record\":\"cluster\"}".to_owned(), "unknown variant `cluster`"),
        (changed(0, "form", 2.into()), "its form is 2, but this version reads 1"),
        (changed(0, "source", "somewhere".into()), "`somewhere` names no queue"),
        (changed(0, "settings", "!".into()), "line 1"),
        (changed(0, "settings", "bm8=".into()), "settings"),
        (changed(task, "id", "first".into()), "`first` is not the id of a task"),
        (changed(task, "state", "lost".into()), "unknown variant `lost`"),
        (changed(task, "attempts", (-1).into()), &*format!("line {}", task + 1)),
        (changed(letter, "payload", "?".into()), &*format!("line {}", letter + 1)),
    ] {
        let error = refused(&stage, &content);
        assert!(error.contains(expected), "{content:.60}: {error}");
    }
    assert!(refused(&stage, [0xff, 0xfe, 0x00, b'\n']).contains("UTF-8"));
    std::fs::remove_file(stage.file()).unwrap();
    let gone = stage.engine.run(stage.engine.client().queue(TO).import(&stage.file()));
    assert!(matches!(gone, Err(MoveError::File(_))), "{gone:?}");
}
