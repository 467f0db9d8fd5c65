//! What there is to turn in a crate: `cargo xtask tidy --rooms CRATE`.
//!
//! Shows the arrows against the order, the circles, and of each circle the fewest arrows that were
//! found to hold it together: without those its files have an order. It judges nothing.

use super::circles::{circles, short_name};
use super::plan::{Arrow, Plan};
use super::rooms::Order;
use std::collections::HashMap;

/// How heavy the arrows between two nodes are.
type Weights = HashMap<(usize, usize), usize>;

/// Prints what there is to turn in the crate of `plan`.
pub(crate) fn show(plan: &Plan<'_>, arrows: &[Arrow], order: &Order) {
    let is_root = |file: usize| plan.files[file].module.is_empty();
    let arrows: Vec<Arrow> =
        arrows.iter().filter(|arrow| !is_root(arrow.from) && !is_root(arrow.to)).cloned().collect();
    let calls = arrows.iter().filter(|arrow| arrow.is_call).count();
    println!(
        "{}: {} files, {} arrows: {} imports, {calls} calls of methods",
        plan.name,
        plan.files.len() - 1,
        arrows.len(),
        arrows.len() - calls
    );
    show_against(plan, &arrows, order);
    show_suggestion(plan, &arrows, order);
    for circle in circles(plan, &arrows) {
        show_circle(plan, &arrows, order, circle);
    }
}

fn show_against(plan: &Plan<'_>, arrows: &[Arrow], order: &Order) {
    let against = |is_call: bool| {
        let against = arrows.iter().filter(move |arrow| arrow.is_call == is_call);
        against.filter(|arrow| order.is_against(plan, arrow)).collect::<Vec<_>>()
    };
    let (imports, calls) = (against(false), against(true));
    println!("\nImports against the order, each a finding: {}", imports.len());
    imports.iter().for_each(|arrow| show_arrow(plan, arrow));
    println!("\nCalls of methods against the order: {}", calls.len());
    calls.iter().for_each(|arrow| show_arrow(plan, arrow));
}

fn show_arrow(plan: &Plan<'_>, arrow: &Arrow) {
    let (from, to) = (short_name(plan, arrow.from), short_name(plan, arrow.to));
    println!("    {from}:{} -> {to}: {}", arrow.line, arrow.name);
}

/// Shows an order of the rooms that fewer imports run against, if one is found.
fn show_suggestion(plan: &Plan<'_>, arrows: &[Arrow], order: &Order) {
    let mut rooms: Vec<&String> = plan.files.iter().filter_map(|f| f.module.first()).collect();
    rooms.sort_by_key(|room| (order.place(std::slice::from_ref(*room)), *room));
    rooms.dedup();
    let room_of = |file: usize| {
        let first = plan.files[file].module.first()?;
        rooms.iter().position(|room| *room == first)
    };
    let mut weights = Weights::new();
    for arrow in arrows.iter().filter(|arrow| !arrow.is_call) {
        if let (Some(from), Some(to)) = (room_of(arrow.from), room_of(arrow.to)) {
            *weights.entry((from, to)).or_default() += 1;
        }
    }
    let today: Vec<usize> = (0..rooms.len()).collect();
    let better = best_order(&today, &weights);
    let (now, then) = (against(&today, &weights), against(&better, &weights));
    if then < now {
        let names: Vec<&str> = better.iter().map(|room| rooms[*room].as_str()).collect();
        println!("\nAn order with {then} imports against it: {}", names.join(" "));
    }
}

fn show_circle(plan: &Plan<'_>, arrows: &[Arrow], order: &Order, mut circle: Vec<usize>) {
    let inside: Vec<&Arrow> = arrows
        .iter()
        .filter(|arrow| circle.contains(&arrow.from) && circle.contains(&arrow.to))
        .collect();
    let mut weights = Weights::new();
    inside.iter().for_each(|arrow| *weights.entry((arrow.from, arrow.to)).or_default() += 1);
    circle.sort_by_key(|file| (order.place(&plan.files[*file].module), *file));
    let files = best_order(&circle, &weights);
    let names: Vec<&str> = files.iter().map(|file| short_name(plan, *file)).collect();
    println!("\nA circle of {} files, held together by {} arrows.", files.len(), inside.len());
    println!("  In the order that the fewest arrows run against: {}", names.join(" "));
    let place = |file: usize| files.iter().position(|other| *other == file);
    let (up, down): (Vec<&Arrow>, Vec<&Arrow>) =
        inside.into_iter().partition(|arrow| place(arrow.from) < place(arrow.to));
    println!("  Arrows to turn, after which it is no circle: {}", up.len());
    up.iter().for_each(|arrow| show_arrow(plan, arrow));
    println!("  The other arrows inside: {}", down.len());
    down.iter().for_each(|arrow| show_arrow(plan, arrow));
}

/// How much runs against an order.
fn against(order: &[usize], weights: &Weights) -> usize {
    let place: HashMap<usize, usize> =
        order.iter().enumerate().map(|(place, node)| (*node, place)).collect();
    let upwards = weights.iter().filter(|((from, to), _)| place[from] < place[to]);
    upwards.map(|(_, weight)| weight).sum()
}

/// An order that little runs against: nodes move one by one to their best place while that helps.
fn best_order(nodes: &[usize], weights: &Weights) -> Vec<usize> {
    let mut pulled = nodes.to_vec();
    pulled.sort_by_key(|node| pull(*node, weights));
    let candidates = [nodes.to_vec(), pulled].map(|order| improved(order, weights));
    candidates.into_iter().min_by_key(|order| against(order, weights)).unwrap_or_default()
}

/// How much more a node takes than gives.
fn pull(node: usize, weights: &Weights) -> isize {
    let sum = |end: fn(&(usize, usize)) -> usize| {
        let weights = weights.iter().filter(|(ends, _)| end(ends) == node);
        weights.map(|(_, weight)| weight.cast_signed()).sum::<isize>()
    };
    sum(|ends| ends.0) - sum(|ends| ends.1)
}

fn improved(mut order: Vec<usize>, weights: &Weights) -> Vec<usize> {
    loop {
        let mut gained = 0;
        for node in order.clone() {
            gained += move_to_best_place(&mut order, node, weights);
        }
        if gained == 0 {
            return order;
        }
    }
}

/// Moves `node` to its best place; how much less then runs against the order.
fn move_to_best_place(order: &mut Vec<usize>, node: usize, weights: &Weights) -> usize {
    let Some(now) = order.iter().position(|other| *other == node) else { return 0 };
    order.remove(now);
    let weight = |from: usize, to: usize| weights.get(&(from, to)).copied().unwrap_or(0);
    // At the bottom all that the node takes from is above it.
    let mut cost: usize = order.iter().map(|other| weight(node, *other)).sum();
    let mut costs = vec![cost];
    for other in order.iter() {
        cost = cost + weight(*other, node) - weight(node, *other);
        costs.push(cost);
    }
    let least = (0..costs.len()).min_by_key(|place| (costs[*place], place.abs_diff(now)));
    let best = least.unwrap_or(now);
    order.insert(best, node);
    costs[now] - costs[best]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weakest_arrow_of_a_ring_is_the_one_to_turn() {
        // Imports and their number: of 1 by 0, of 2 by 1, of 0 by 2.
        let weights = Weights::from([((0, 1), 5), ((1, 2), 4), ((2, 0), 1)]);
        let order = best_order(&[0, 1, 2], &weights);
        assert_eq!(order, [2, 1, 0]);
        assert_eq!(against(&order, &weights), 1);
    }

    #[test]
    fn layers_need_no_arrow_turned() {
        let weights = Weights::from([((4, 1), 1), ((4, 2), 1), ((1, 2), 1), ((3, 4), 1)]);
        assert_eq!(against(&best_order(&[4, 3, 2, 1], &weights), &weights), 0);
    }
}
