//! PostMark on one host, behind its link.

use super::super::interruption;
use super::super::rates::{self, Configuration, RATES, Rates};
use super::super::sheet::{Line, Sheet};
use super::contender::Contender;
use super::{ROUND_TRIP, Setting};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::hosts::Conditions;
use std::time::Duration;

/// The five rates, at the usual round trip, with the goals.
pub(super) fn remote(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    let key = |rate: &str| format!("postmark: {rate}");
    for repetition in 1..=setting.sizes.repetitions {
        for contender in &setting.contenders {
            interruption::check()?;
            let name = format!("mail{repetition}");
            let rates = measure(setting, *contender, &name, setting.sizes.mail)?;
            for ((rate, ..), value) in RATES.iter().zip(rates) {
                let Configuration { files, transactions } = setting.sizes.mail;
                let title =
                    format!("PostMark, {files} files, {transactions} changes, 1 ms: {rate}");
                sheet.add(&Line::rate(key(rate), title), contender.subject(), value);
            }
        }
    }
    for (rate, ..) in RATES {
        beside_peers(setting, sheet, &key(rate), &format!("PostMark at 1 ms, {rate}"));
    }
    Ok(())
}

/// Ours beside the best peer that is as durable, and beside each of the others.
fn beside_peers(setting: &Setting<'_>, sheet: &mut Sheet, key: &str, title: &str) {
    let ours = Contender::Marram.subject();
    let Some(own) = sheet.median(key, ours.name) else { return };
    let peers: Vec<_> = setting.contenders.iter().map(|contender| contender.subject()).collect();
    let best = peers
        .iter()
        .filter(|peer| !peer.is_ours && peer.durable == ours.durable)
        .filter_map(|peer| sheet.median(key, peer.name))
        .reduce(f64::max);
    let what = format!("{title}: to the best peer as durable");
    sheet.at_least(what, best.map(|best| own / best), 1.0, "times");
    for peer in peers.iter().filter(|peer| !peer.is_ours && peer.durable != ours.durable) {
        let theirs = sheet.median(key, peer.name);
        let what = format!("{title}: to {}, which is less durable", peer.name);
        sheet.at_least(what, theirs.map(|theirs| own / theirs), 1.0, "times");
    }
}

/// All files and changes of a smaller run over the time that they took, at other round trips.
pub(super) fn by_delay(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    for microseconds in setting.sizes.far {
        let round_trip = Duration::from_micros(*microseconds);
        setting.hosts.set(Conditions::round_trip(round_trip));
        let measured = setting.hosts.round_trip()?.as_secs_f64() * 1e3;
        let wanted = round_trip.as_secs_f64() * 1e3;
        sheet
            .header
            .push((format!("round trip of {wanted} ms, measured"), format!("{measured:.2} ms")));
        for contender in &setting.contenders {
            interruption::check()?;
            let name = format!("far{microseconds}");
            let rates = measure(setting, *contender, &name, setting.sizes.far_mail)?;
            let Configuration { files, transactions } = setting.sizes.far_mail;
            let title =
                format!("PostMark, {files} files, {transactions} changes, {wanted} ms: removed");
            let line = Line::rate(format!("postmark at {microseconds} us"), title);
            sheet.add(&line, contender.subject(), rates[RATES.len() - 1]);
        }
    }
    setting.hosts.set(Conditions::round_trip(ROUND_TRIP));
    Ok(())
}

fn measure(
    setting: &Setting<'_>,
    contender: Contender,
    name: &str,
    configuration: Configuration,
) -> Result<Rates> {
    let [host] = setting.hosts(1) else { return fail("there is no host") };
    let store = setting.store(contender, name)?;
    let mounted = store.mount(host)?;
    let folder = mounted.place().join(name);
    std::fs::create_dir(host.seen(&folder))?;
    let script = host.folder().join(format!("{name}.postmark"));
    let measured =
        rates::measure(configuration, &folder, &script, |postmark| host.around(postmark))
            .context(|| contender.subject().name)?;
    mounted.unmount()?;
    Ok(measured)
}
