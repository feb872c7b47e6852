//! Settings of ZooKeeper.

use mczk_api::contract::settings::{SETTINGS, SettingField, SettingGroup, SettingUse, SettingValue};

use crate::table::{code, head, table};

const INTRODUCTION: &str = "\
This page lists every setting of ZooKeeper 3.9, and what mczk does with it. The API server refuses an object with a name that
is refused here, and with a wrong value in `template.zooCfg`. An agent refuses a wrong value in `overrides` or `jvmFlags`,
and no server stops for it. Bounds keep out values with which ZooKeeper starts, but could not lead, serve or recover. To have ZooKeeper's default, leave a setting out. A name
that ends with `*` stands for all names that begin so.

`zooCfg` takes only names of this page, because ZooKeeper ignores a name that it does not know. Each setting has one place,
the column *field*, because `zoo.cfg` wins over a flag. A whole name counts before one with `*`. `jvmFlags` also takes
properties of plug-ins and of later versions of ZooKeeper, as `-Dzookeeper.NAME=VALUE`. Other flags of Java may stand there too, each with its value in one entry. Files
of flags, other programs and `OnOutOfMemoryError` are refused. The same rules hold for `JAVA_TOOL_OPTIONS`, `JDK_JAVA_OPTIONS` and `_JAVA_OPTIONS` in the environment of the image.";

const SECTIONS: [(SettingUse, &str, &str); 3] = [
    (
        SettingUse::Ensemble,
        "Equal in all clusters",
        "Set these in `template`. They are refused in `overrides`. During a rollout clusters differ for a while, so change
them in steps that both values survive. Two of them say how ZooKeeper reads what it has stored: the API server refuses a
change that would lose it. An agent does so too, if an ensemble is declared again over servers that run.",
    ),
    (SettingUse::Cluster, "For each cluster", "Set these in `template`, or for one cluster in `overrides`."),
    (SettingUse::Refused, "Refused", "The last column has the reason, and what to do instead."),
];

pub fn page() -> String {
    head("Settings of ZooKeeper", INTRODUCTION) + &SECTIONS.map(section).concat()
}

fn section((allowed, title, introduction): (SettingUse, &str, &str)) -> String {
    let groups: Vec<_> = SETTINGS.iter().filter(|group| group.allowed == allowed).collect();
    let mut rows: Vec<_> = groups.into_iter().flat_map(rows).collect();
    rows.sort_by_key(|row| row[0].to_lowercase());
    let table = if allowed == SettingUse::Refused {
        let rows: Vec<_> = rows.into_iter().map(|[name, _, _, why]| [name, why]).collect();
        table(["setting", "reason"], &rows)
    } else {
        table(["setting", "field", "value", "why it is allowed"], &rows)
    };
    format!("\n## {title}\n\n{introduction}\n{table}")
}

fn rows(group: &'static SettingGroup) -> Vec<[String; 4]> {
    let field = match group.field {
        SettingField::ZooCfg => "`zooCfg`",
        SettingField::Flag => "`jvmFlags`, as `-DNAME`",
    };
    let value = match group.value {
        SettingValue::Number(least, i32::MAX) => format!("a whole number, not below {least}"),
        SettingValue::Number(least, most) => format!("a whole number from {least} to {most}"),
        SettingValue::LimitOrNone(least) => format!("0, for no limit, or a whole number, not below {least}"),
        SettingValue::Share => "a number above 0, not above 1".to_owned(),
        SettingValue::Boolean => "`true` or `false`".to_owned(),
        SettingValue::Fixed(default) => format!("`true` or `false`, from the creation on; by default `{default}`"),
        SettingValue::OnceTrue => "`true` or `false`; `true` is final".to_owned(),
        SettingValue::Text => "any".to_owned(),
    };
    let name = |name: &str| code(&if name.ends_with('.') { format!("{name}*") } else { name.to_owned() });
    let row = |own| [name(own), field.to_owned(), value.clone(), capitalise(group.why)];
    group.names().map(row).collect()
}

fn capitalise(text: &str) -> String {
    if text.starts_with("mczk") {
        return text.to_owned();
    }
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}
