"""The transaction coordinator: transactional ids, their transactions, and how these end."""
