"""The study of modes of keeping an order: classes, ceilings on senders, or both, against the ideal order."""
