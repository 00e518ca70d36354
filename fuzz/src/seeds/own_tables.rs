//! People's own tables with their schemas.

use crate::input::join;

const PLAIN: &str = "[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\nlabel = \"label\"\nsplit = \
                     \"random:60,20,20\"\n[[edges]]\nfiles = \"edges.csv\"\nsrc = \"a\"\ndst = \"b\"\n";
const RICH: &str = "dangling = \"add\"\n[[nodes]]\nfiles = \"nodes.csv\"\nid = [\"id\", \"part\"]\nlabel = \
                    \"y\"\ntask = \"regression\"\nsplit = \"time:day:50,25,25\"\nmissing = \
                    \"indicator\"\ncolumns = { x = \"number, quantile\", c = \"code\" }\n[[edges]]\nfiles \
                    = \"edges.csv\"\nsrc = [\"a\", \"p\"]\ndst = [\"b\", \"q\"]\ntime = \"t\"\nweight = \
                    \"w\"\nfeatures = [\"w\"]\nreverse = \"back\"\n";

pub(super) fn add(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let nodes = "id,label,x,day,list\nu,k,1.5,2024-01-01,\"[1, 2]\"\nv,l,,2024-01-02,\"[3, 4]\"\nw,,-2,NA,\n";
    let edges = "a;b\nu;v\nv;w\nw;u\n";
    let plain =
        [("schema.toml", PLAIN.as_bytes()), ("nodes.csv", nodes.as_bytes()), ("edges.csv", edges.as_bytes())];
    add("import_tables", "csv", join("", &plain));
    let nodes = "{\"id\": 1, \"part\": \"a\", \"y\": 0.5, \"x\": 3, \"c\": \"k\", \"day\": \"2024-01-01\"}\n\
                 {\"id\": 2, \"part\": \"a\", \"y\": 1.5, \"x\": null, \"c\": \"l\", \
                 \"day\": \"2024-01-03\"}\n";
    let edges = "a,p,b,q,t,w\n1,a,2,a,10,0.5\n2,a,3,b,11,2\n";
    let rich =
        [("schema.toml", RICH.as_bytes()), ("nodes.csv", nodes.as_bytes()), ("edges.csv", edges.as_bytes())];
    add("import_tables", "json", join("", &rich));
    add("tables_schema", "plain", PLAIN.into());
    add("tables_schema", "rich", RICH.into());
}
