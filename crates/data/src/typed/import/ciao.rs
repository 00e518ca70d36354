//! Import of the Ciao and Epinions sets (Tang, Gao and Liu, mTrust, WSDM 2012): a directory with
//! the MATLAB files `rating.mat` (`rating`: user, product, category, rating, helpfulness and,
//! optionally, a time) and `trustnetwork.mat` (`trustnetwork`: truster, trusted).
//!
//! Users and products are all ids that occur, with the ids as keys. Edges `user:rates:product` have
//! the features category and helpfulness; the task `rating` predicts their ratings. A fraction of
//! them tests (`test-fraction`, 0.2), and another validates (`valid-fraction`, 0.1).

use std::path::Path;

use graphmill_core::{Error, Result, location::Location};

use super::{
    TypedOptions,
    files::Files,
    ids::{Ids, renumber},
    raw::{RawEdges, RawTyped, random_parts, split},
};
use crate::{
    dataset::import::facebook100::mat5::Mat,
    typed::{EdgeType, FeatureTable, Seeds, Targets, Task, TaskOn},
};

/// Reads the directory `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title(), ..RawTyped::default() };
    let (path, rating) = matrix(&files, "rating")?;
    let at = Location::new(&path, "variable rating");
    let [columns @ (5 | 6), rows] = [rating.len(), rating.first().map_or(0, Vec::len)] else {
        let message =
            format!("{} columns; user, product, category, rating, helpfulness expected", rating.len());
        return Err(at.error(message));
    };
    let (trust_path, trust) = matrix(&files, "trustnetwork")?;
    if trust.len() != 2 {
        let message = format!("{} columns; truster and trusted expected", trust.len());
        return Err(Location::new(&trust_path, "variable trustnetwork").error(message));
    }
    let (mut users, mut products) = (Ids::default(), Ids::default());
    let number = |ids: &mut Ids, column: &[f64]| -> Result<Vec<u32>> {
        let id = |(i, x): (usize, &f64)| match x {
            x if x.fract() == 0.0 && (0.0..9e15).contains(x) => ids.id(&(*x as i64).to_string()),
            x => Err(format!("row {i}: the id {x} is not a whole number")),
        };
        column.iter().enumerate().map(id).collect::<Result<_, _>>().map_err(|e| at.error(e))
    };
    let mut rater = number(&mut users, &rating[0])?;
    let mut product = number(&mut products, &rating[1])?;
    let mut truster = number(&mut users, &trust[0])?;
    let mut trusted = number(&mut users, &trust[1])?;
    let (user_count, product_count) = (users.len(), products.len());
    let (user_keys, user_number) = users.finish()?;
    let (product_keys, product_number) = products.finish()?;
    [&mut rater, &mut truster, &mut trusted].into_iter().for_each(|ids| renumber(ids, &user_number));
    renumber(&mut product, &product_number);
    raw.add_nodes("user", user_count, Some(user_keys));
    raw.add_nodes("product", product_count, Some(product_keys));
    let rates = EdgeType::new("user", "rates", "product");
    let mut table = FeatureTable::dense(
        2,
        (0..rows).flat_map(|i| [rating[2][i] as f32, rating[4][i] as f32]).collect::<Vec<_>>(),
    );
    table.names = vec!["category".into(), "helpfulness".into()];
    let time = (columns == 6).then(|| rating[5].iter().map(|&t| t as i64).collect());
    let (valid, test) = (options.valid_fraction.unwrap_or(0.1), options.test_fraction.unwrap_or(0.2));
    if valid + test >= 1.0 {
        return Err(Error::invalid(format!(
            "valid-fraction {valid} and test-fraction {test} leave no ratings to train on; their sum must \
                be below 1"
        )));
    }
    let edges =
        RawEdges { src: rater, dst: product, time, features: Some(table), ..RawEdges::new(rates.clone()) };
    raw.tasks.push(Task {
        seeds: Some(Seeds::Pairs(edges.pairs().into())),
        targets: Targets::Values {
            width: 1,
            values: rating[3].iter().map(|&x| x as f32).collect::<Vec<_>>().into(),
        },
        names: vec!["rating".into()],
        split: split(random_parts(rows, valid, test, options.split_seed)),
        metric: Some("rmse".into()),
        ..Task::new("rating", TaskOn::Edges(rates))
    });
    raw.edges.push(edges);
    let trusts = EdgeType::new("user", "trusts", "user");
    raw.edges.push(RawEdges { src: truster, dst: trusted, ..RawEdges::new(trusts) });
    raw.report.ignore_unread(files.names(), |name| ["rating.mat", "trustnetwork.mat"].contains(&name));
    Ok(raw)
}

/// Columns of the dense matrix `name` in the file of that name.
fn matrix(files: &Files, name: &str) -> Result<(std::path::PathBuf, Vec<Vec<f64>>)> {
    let file = files.required(&format!("{name}.mat"))?;
    let Some(path) = files.on_disk(file) else {
        return Err(super::lines::wrong(
            files,
            file,
            "a .mat file inside an archive is not read; unpack the archive",
        ));
    };
    let mut mat = Mat::open(&path)?;
    while let Some(variable) = mat.next()? {
        if variable.name != name {
            continue;
        }
        let shape = variable.shape.clone();
        let &[rows, columns] = &shape[..] else {
            return Err(variable.at().error(format!("two axes expected, shape {shape:?} found")));
        };
        if columns > 64 {
            return Err(variable.at().error(format!("{columns} columns; at most 64 expected")));
        }
        let values: Vec<f64> = variable.dense()?;
        if values.iter().any(|x| !x.is_finite()) {
            return Err(Location::new(&path, format!("variable {name}")).error("a value is not finite"));
        }
        let columns = (0..columns).map(|j| values[j * rows..(j + 1) * rows].to_vec()).collect();
        return Ok((path.clone(), columns));
    }
    Err(Location::new(&path, "variables").error(format!("there is no variable '{name}'")))
}
