"""What people and programs read after a run: tables, JSON documents, pictures, files of rows, timelines for a viewer."""
