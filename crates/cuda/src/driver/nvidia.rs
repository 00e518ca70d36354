//! The vendor's driver, by its library, which is looked for at run time.
