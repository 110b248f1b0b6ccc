"use strict";

// A page has its tables anywhere; a widget only within itself.
sortOnClick(document);
