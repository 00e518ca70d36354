//! Macros of the table: kernels, and groups of parameters that kernels share.

/// Declares a group of parameters as a struct.
macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub(crate) $field: $type,)*
        }

        impl $crate::kernels::Parameter for $name {
            fn add_to(self, call: &mut $crate::kernels::Call) {
                $($crate::kernels::Parameter::add_to(self.$field, call);)*
            }

            #[cfg(test)]
            fn declare(_: &str, to: &mut $crate::kernels::tests::Declaration) {
                $(<$type as $crate::kernels::Parameter>::declare(stringify!($field), to);)*
            }
        }
    )* };
}

/// Names of a kernel's variants: see [`Names`](super::Names).
macro_rules! names {
    ($($table:literal)*; $kernel:ident) => {
        &[$([
            [concat!(stringify!($kernel), $table), concat!(stringify!($kernel), $table, "_long")],
            [concat!(stringify!($kernel), $table, "_4"), concat!(stringify!($kernel), $table, "_4_long")],
        ]),*]
    };
}

/// Declares kernels as structs, each with its trait, its name in the sources, and the least number
/// of values behind some of its pointers.
macro_rules! kernels {
    ($($trait:ident $name:ident $(($rows:ident))? = $kernel:ident {
        $($field:ident: $type:ty $([$values:expr])?),* $(,)?
    })*) => {
        $(
            #[derive(Clone, Copy, Debug)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)*
            }

            impl $crate::kernels::Arguments for $name {
                const NAMES: &'static $crate::kernels::Names = names!("" "_f32" "_f16" "_bf16"; $kernel);

                #[allow(unused_variables, reason = "some fields neither have nor give a size")]
                fn check(&self, num_rows: usize) {
                    $(let $rows = num_rows;)?
                    let Self { $($field),* } = *self;
                    $($($crate::kernels::require(Self::NAMES, stringify!($field), $field, $values);)?)*
                }

                fn add_to(&self, call: &mut $crate::kernels::Call) {
                    $($crate::kernels::Parameter::add_to(self.$field, call);)*
                }
            }

            impl $crate::kernels::$trait for $name {}
        )*

        /// Declarations of all kernels.
        #[cfg(test)]
        pub(super) fn declared() -> Vec<$crate::kernels::tests::Declaration> {
            vec![$({
                let names = <$name as $crate::kernels::Arguments>::NAMES;
                let has_long_rows = stringify!($trait) == "RowKernel";
                let mut declared = $crate::kernels::tests::Declaration::new(names, has_long_rows);
                $(<$type as $crate::kernels::Parameter>::declare(stringify!($field), &mut declared);)*
                declared
            }),*]
        }
    };
}

pub(super) use {groups, kernels, names};
