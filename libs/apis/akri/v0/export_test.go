package v0

// ListItems is listItems.
var ListItems = listItems
