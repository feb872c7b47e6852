//! Commands that collect what mczk and ZooKeeper write.

pub mod bundle;
pub mod logs;
