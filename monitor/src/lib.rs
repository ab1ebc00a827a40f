//! The node's root daemon: it grants the turns on each GPU and measures each job from outside.
