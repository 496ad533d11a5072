//! A strict HTML reader: it rejects any page in which a text could become a tag.

/// A piece of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Open(Tag),
    Close(String),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) name: String,
    /// With decoded values, as a browser reads them.
    pub(crate) attributes: Vec<(String, String)>,
}

impl Tag {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }
}

/// Tags without an end tag.
const VOID: [&str; 4] = ["meta", "link", "input", "br"];

/// The pieces of a page. Panics if it is not well formed.
pub(crate) fn pieces(page: &str) -> Vec<Piece> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page says what it is");
    let (mut pieces, mut open) = (Vec::new(), Vec::<String>::new());
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix("</") {
            let (name, behind) = behind.split_once('>').expect("a tag ends");
            assert_eq!(open.pop().as_deref(), Some(name), "tags are closed in order");
            pieces.push(Piece::Close(name.to_owned()));
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix('<') {
            let (tag, behind) = tag(behind);
            if !VOID.contains(&tag.name.as_str()) {
                open.push(tag.name.clone());
            }
            pieces.push(Piece::Open(tag));
            rest = behind;
        } else {
            let end = rest.find('<').unwrap_or(rest.len());
            pieces.push(Piece::Text(unescaped(&rest[..end])));
            rest = &rest[end..];
        }
    }
    assert_eq!(open, Vec::<String>::new(), "all tags are closed");
    pieces
}

fn tag(text: &str) -> (Tag, &str) {
    let is_name = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | ':');
    let word = |text: &str| text.find(|it| !is_name(it)).expect("a tag ends");
    let end = word(text);
    let (name, mut rest) = text.split_at(end);
    assert!(name.starts_with(|it: char| it.is_ascii_alphabetic()), "no tag: <{text:.40}");
    let mut attributes: Vec<(String, String)> = Vec::new();
    while let Some(behind) = rest.strip_prefix(' ') {
        let (attribute, behind) = behind.split_at(word(behind));
        let (value, behind) = match behind.strip_prefix("=\"") {
            Some(quoted) => quoted.split_once('"').expect("a quote ends"),
            None => ("", behind),
        };
        assert!(!attribute.is_empty(), "an attribute has a name: {rest:.40}");
        assert!(attributes.iter().all(|it| it.0 != attribute), "{attribute} is there twice");
        attributes.push((attribute.to_owned(), unescaped(value)));
        rest = behind;
    }
    let rest = rest.strip_prefix('>').expect("a tag ends behind its attributes");
    (Tag { name: name.to_owned(), attributes }, rest)
}

fn unescaped(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    text.replace("&amp;", "&")
}

/// The tags of a page, in order.
pub(crate) fn tags(page: &str) -> Vec<Tag> {
    let open = |piece| if let Piece::Open(tag) = piece { Some(tag) } else { None };
    pieces(page).into_iter().filter_map(open).collect()
}

/// A form with these fields, as its first button sends it.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) action: String,
    pub(crate) fields: Vec<(String, String)>,
}

/// The forms of a page that change something.
pub(crate) fn forms(page: &str) -> Vec<Form> {
    let mut forms: Vec<Form> = Vec::new();
    let mut is_open = false;
    for piece in pieces(page) {
        match piece {
            Piece::Open(tag) if tag.name == "form" => {
                is_open = tag.get("method") == Some("post");
                let action = tag.get("action").unwrap_or_default().to_owned();
                forms.extend(is_open.then_some(Form { action, fields: Vec::new() }));
            }
            Piece::Open(tag) if is_open => {
                let value = tag.get("value").unwrap_or_default().to_owned();
                let field = tag.get("name").map(|name| (name.to_owned(), value));
                forms.last_mut().unwrap().fields.extend(field);
            }
            Piece::Close(name) if name == "form" => is_open = false,
            Piece::Open(_) | Piece::Close(_) | Piece::Text(_) => {}
        }
    }
    forms
}

#[test]
fn what_is_not_well_formed_is_not_read() {
    let page = |body: &str| format!("<!DOCTYPE html><p>{body}</p>");
    assert_eq!(pieces(&page("a &lt;b")).len(), 3);
    for wrong in ["<", "<b>", "</b>", "a < b", "<a href=x></a>", "<a b=\"></a>", "<b a=\"\"a></b>"]
    {
        let read = std::panic::catch_unwind(|| pieces(&page(wrong)));
        assert!(read.is_err(), "{wrong} was read as {read:?}");
    }
}
