// Makes the other pages of a user who has logged out show the login, too.
'use strict';
new BroadcastChannel('akri-login').postMessage('');
