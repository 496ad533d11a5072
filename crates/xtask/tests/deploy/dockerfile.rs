//! `docker/Dockerfile`.

use super::{image_fault, read};

/// The instructions with their arguments; continued lines are one.
fn instructions(text: &str) -> Vec<(String, String)> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let joined = code.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty());
    let split = |line: &str| {
        line.split_once(' ').map(|(name, rest)| (name.to_owned(), rest.trim().to_owned()))
    };
    lines.filter_map(split).collect()
}

fn faults(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let all = instructions(text);
    let last_stage = all.iter().rposition(|(name, _)| name == "FROM").unwrap_or_default();
    for (name, rest) in &all {
        match name.as_str() {
            "FROM" => found.extend(image_fault(rest.split(' ').next().unwrap_or_default())),
            "ADD" => found.push("ADD fetches and unpacks: COPY does not".to_owned()),
            "RUN" if rest.contains("apt-get install") => {
                for part in [
                    "apt-get update",
                    "--no-install-recommends",
                    "--yes",
                    "rm -rf /var/lib/apt/lists/*",
                ] {
                    if !rest.contains(part) {
                        found.push(format!("a RUN installs packages without {part}"));
                    }
                }
            }
            "RUN" if rest.contains("sudo ") || rest.contains("| sh") || rest.contains("| bash") => {
                found.push(format!("a RUN that nobody can follow: {rest}"));
            }
            "CMD" | "ENTRYPOINT" if !rest.starts_with('[') => {
                found.push(format!("{name} runs a shell, which gets the signals"));
            }
            "HEALTHCHECK" if rest.contains("curl") || rest.contains("wget") => {
                found.push("the check needs a program that is not there".to_owned());
            }
            "ENV" | "ARG"
                if ["TOKEN", "SECRET", "PASSWORD"].iter().any(|word| rest.contains(word)) =>
            {
                found.push(format!("a secret in the image: {rest}"));
            }
            _ => {}
        }
    }
    let of_image = &all[last_stage..];
    let value = |wanted: &str| {
        of_image.iter().rfind(|(name, _)| name == wanted).map(|(_, rest)| rest.as_str())
    };
    for needed in ["USER", "HEALTHCHECK", "ENTRYPOINT", "WORKDIR", "STOPSIGNAL", "VOLUME"] {
        if value(needed).is_none() {
            found.push(format!("the image has no {needed}"));
        }
    }
    let user = value("USER").unwrap_or("0").split(':').next().unwrap_or("0");
    if user.parse::<u32>().is_ok_and(|id| id == 0) || user == "root" || user.parse::<u32>().is_err()
    {
        found.push(format!("the user is {user}: Kubernetes asks for a number that is not 0"));
    }
    if all.iter().filter(|(name, _)| name == "FROM").count() < 2 {
        found.push("the compiler stays in the image".to_owned());
    }
    found
}

#[test]
fn the_image_is_small_pinned_and_runs_as_nobody_in_particular() {
    assert_eq!(faults(&read("docker/Dockerfile")), Vec::<String>::new());
}

#[test]
fn each_planted_fault_is_found() {
    let text = read("docker/Dockerfile");
    for (from, to) in [
        ("debian:12.12-slim", "debian:latest"),
        ("debian:12.12-slim", "debian"),
        ("USER 10001:10001", "USER root"),
        ("USER 10001:10001\n", ""),
        ("HEALTHCHECK", "LABEL"),
        ("COPY . .", "ADD . ."),
        (" && rm -rf /var/lib/apt/lists/*", " "),
        ("--no-install-recommends ", ""),
        ("ENTRYPOINT [\"longhaul\"]", "ENTRYPOINT longhaul"),
        ("WORKDIR /var/lib/longhaul", "ENV API_TOKEN=x"),
        ("CMD [\"longhaul\", \"server\", \"check\"]", "CMD curl localhost:7070"),
    ] {
        assert!(text.contains(from), "the file has no `{from}`");
        let planted = text.replace(from, to);
        assert!(!faults(&planted).is_empty(), "`{to}` in place of `{from}` is not found");
    }
}

/// What the build needs must be sent to it, and what it does not need must not: the target folder alone has gigabytes.
#[test]
fn the_context_is_what_the_build_needs() {
    let ignored: Vec<String> = read(".dockerignore")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    for needed in ["/target", "/.git", "/.cache"] {
        assert!(ignored.iter().any(|line| line == needed), "{needed} is sent");
    }
    for used in [
        "/docs",
        "/README.md",
        "/src",
        "/crates",
        "/integration-tests",
        "/Cargo.lock",
        "/LICENSE",
        "/build-support",
    ] {
        assert!(!ignored.iter().any(|line| line == used), "{used} is not sent");
    }
}
