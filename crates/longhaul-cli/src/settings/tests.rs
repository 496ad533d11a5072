use super::*;
use std::fs;

/// A folder with a file of contexts.
struct World {
    folder: tempfile::TempDir,
    variables: BTreeMap<String, String>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml").display().to_string();
        let variables = BTreeMap::from([("LONGHAUL_CONFIG".to_owned(), config)]);
        Self { folder, variables }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn with(mut self, variable: &str, value: &str) -> Self {
        self.variables.insert(variable.to_owned(), value.to_owned());
        self
    }

    fn read(&self, flags: &[(&'static str, &str)]) -> Result<CliSettings, CommandFailure> {
        let environment = |name: &str| self.variables.get(name).cloned();
        let flags: Vec<_> = flags.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        CliSettings::read(&flags, environment)
    }
}

fn told(settings: &CliSettings, name: &str) -> String {
    let value = settings.value(name).unwrap();
    format!("{} from {}", value.text, value.source)
}

#[test]
fn the_first_that_says_a_setting_counts() {
    let world = World::new();
    world.file(
        "config.toml",
        "context = \"a\"\nsubscription = \"top\"\ntimeout = \"1m\"\n\
         [contexts.a]\nservice-url = \"pulsar://a:1\"\nsubscription = \"of-a\"\n\
         [contexts.b]\nservice-url = \"pulsar://b:1\"\n",
    );
    let world = world.with("PULSAR_SERVICE_URL", "pulsar://env:1");
    let settings = world.read(&[]).unwrap();
    assert_eq!(told(&settings, "service-url"), "pulsar://a:1 from the context a");
    assert_eq!(told(&settings, "subscription"), "of-a from the context a");
    assert_eq!(settings.duration("timeout").unwrap(), Some(Duration::from_secs(60)));
    assert_eq!(told(&settings, "output"), "table from the default");
    // A service URL elsewhere has no default admin API.
    assert_eq!(settings.text("admin-url"), None);

    let settings = world.read(&[("context", "b")]).unwrap();
    assert_eq!(told(&settings, "service-url"), "pulsar://b:1 from the context b");
    assert!(told(&settings, "subscription").starts_with("top from /"));

    let world = world.with("LONGHAUL_SERVICE_URL", "pulsar://own:1");
    let settings = world.read(&[]).unwrap();
    assert_eq!(told(&settings, "service-url"), "pulsar://own:1 from LONGHAUL_SERVICE_URL");
    let settings = world.read(&[("service-url", "pulsar://flag:1")]).unwrap();
    assert_eq!(told(&settings, "service-url"), "pulsar://flag:1 from the command line");
}

#[test]
fn without_anything_it_is_the_broker_of_dev() {
    let settings = World::new().read(&[]).unwrap();
    assert_eq!(told(&settings, "service-url"), "pulsar://127.0.0.1:6650 from the default");
    assert!(told(&settings, "admin-url").starts_with("http://127.0.0.1:"));
}

#[test]
fn pulsars_own_variable_counts_where_nobody_says_an_address() {
    let world = World::new().with("PULSAR_SERVICE_URL", "pulsar://env:1");
    let settings = world.read(&[]).unwrap();
    assert_eq!(told(&settings, "service-url"), "pulsar://env:1 from PULSAR_SERVICE_URL");
    assert_eq!(settings.text("admin-url"), None);
}

#[test]
fn secrets_may_be_in_files() {
    let world = World::new();
    let path = world.file("params", "token:abc\n");
    let world =
        world.with("LONGHAUL_AUTH_PARAMS_FILE", &path).with("LONGHAUL_AUTH_PLUGIN", "token");
    let settings = world.read(&[]).unwrap();
    assert_eq!(
        told(&settings, "auth-params"),
        format!("token:abc from {path} (LONGHAUL_AUTH_PARAMS_FILE)")
    );
    let missing = world.with("LONGHAUL_AUTH_PARAMS_FILE", "/nowhere/params").read(&[]);
    assert!(missing.unwrap_err().to_string().contains("/nowhere/params"));
}

#[test]
fn of_two_ways_to_authenticate_the_more_specific_one_counts() {
    let world = World::new();
    world.file("config.toml", "[contexts.a]\nauth-plugin = \"token\"\nauth-params = \"token:x\"\n");
    let settings = world.read(&[("context", "a"), ("token-file", "/t")]).unwrap();
    assert_eq!((settings.text("token-file"), settings.text("auth-params")), (Some("/t"), None));
    let both = world.read(&[("token-file", "/t"), ("auth-params", "token:x")]);
    assert!(both.unwrap_err().to_string().starts_with("two ways to authenticate"));
}

#[test]
fn who_names_a_broker_on_the_command_line_wants_no_gateway() {
    let world = World::new().with("LONGHAUL_GATEWAY", "http://g:1");
    assert_eq!(told(&world.read(&[]).unwrap(), "gateway"), "http://g:1 from LONGHAUL_GATEWAY");
    let settings = world.read(&[("service-url", "pulsar://b:1")]).unwrap();
    assert_eq!(settings.text("gateway"), None);
    let world = world.with("LONGHAUL_SERVICE_URL", "pulsar://b:1");
    assert_eq!(world.read(&[]).unwrap().text("gateway"), Some("http://g:1"));
}

#[test]
fn what_is_wrong_names_the_place() {
    let world = World::new();
    world.file("config.toml", "timeout = \"soon\"\n");
    let settings = world.read(&[]).unwrap();
    let told = settings.duration("timeout").unwrap_err().to_string();
    assert!(
        told.starts_with("timeout is `soon`, from /") && told.contains("config.toml: expected")
    );
    for (text, problem) in [
        ("speed = 1", "`speed` is not a setting; expected one of gateway, service-url, "),
        ("output = [1]", "`output` is not a string"),
        ("contexts = 1", "`contexts` is not a setting"),
        ("[contexts]\na = 1", "contexts.a is not a table"),
        ("output", "TOML parse error"),
    ] {
        world.file("config.toml", text);
        let told = world.read(&[]).unwrap_err().to_string();
        assert!(told.contains(problem), "{text}: {told}");
    }
    world.file("config.toml", "context = \"gone\"\n");
    assert_eq!(world.read(&[]).unwrap_err().to_string(), "there is no context `gone`");
}

#[test]
fn a_file_that_was_written_is_read_again() {
    let world = World::new();
    let mut file = world.read(&[]).unwrap().file;
    let settings = BTreeMap::from([("service-url".to_owned(), "pulsar://a:1".to_owned())]);
    file.contexts.insert("a".to_owned(), settings);
    file.selected = Some("a".to_owned());
    file.write().unwrap();
    let settings = world.read(&[]).unwrap();
    assert_eq!(told(&settings, "service-url"), "pulsar://a:1 from the context a");
    let mut file = settings.file;
    file.remove("a");
    file.write().unwrap();
    assert_eq!(world.read(&[]).unwrap().context, None);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "others may not read it");
    }
}

/// The file in the documentation.
#[test]
fn the_file_of_the_documentation_is_read() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, block) = page.split_once("<!-- test: settings -->\n```toml\n").unwrap();
    let (file, _) = block.split_once("```").unwrap();
    let world = World::new();
    world.file("config.toml", file);
    let settings = world.read(&[]).unwrap();
    let of_context = "pulsar+ssl://pulsar.example.com:6651 from the context prod";
    assert_eq!(told(&settings, "service-url"), of_context);
    assert_eq!(settings.text("token-file"), Some("/run/secrets/pulsar"));
    assert!(told(&settings, "output").starts_with("table from /"));
}

/// With a context selected, the target of a migration got its admin URL and its token.
#[test]
fn a_target_has_the_settings_of_its_context_or_of_its_options_alone() {
    let world = World::new();
    world.file(
        "config.toml",
        "context = \"a\"\nadmin-url = \"http://top:1\"\ntoken-file = \"/top\"\n\
         [contexts.a]\nservice-url = \"pulsar://a:1\"\ntoken-file = \"/a\"\n\
         [contexts.b]\nservice-url = \"pulsar://b:1\"\ntoken-file = \"/b\"\n",
    );
    let world = world.with("LONGHAUL_ADMIN_URL", "http://env:1").with("LONGHAUL_TOKEN", "env");
    let file = world.read(&[("token-file", "/flag")]).unwrap().file;
    let own = [("service-url", "pulsar://c:1".to_owned())];
    let by_options = CliSettings::of_target(&file, None, &own).unwrap();
    assert_eq!(told(&by_options, "service-url"), "pulsar://c:1 from the command line");
    let by_context = CliSettings::of_target(&file, Some("b"), &[]).unwrap();
    assert_eq!(told(&by_context, "token-file"), "/b from the context b");
    for settings in [&by_options, &by_context] {
        assert_eq!((settings.text("admin-url"), settings.text("token")), (None, None));
    }
    assert_eq!(by_options.text("token-file"), None);
    assert!(CliSettings::of_target(&file, Some("d"), &[]).is_err());
}
