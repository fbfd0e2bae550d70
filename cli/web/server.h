// The process behind `vrdmactl web` that speaks with browsers.
//
//   browser --HTTP--> the server --a byte--> vrdmactl --gRPC--> vrdmad
//                                <--a text---
//
// What comes from a browser is parsed by this process alone. It has an empty root, the user nobody,
// no capability and few system calls: it opens no file, makes no socket and executes nothing. All
// that it knows is the present picture of vrdmad's state, and it cannot change that state.
//
//   GET /                       the page, its style and its program: no secret
//   GET /page.css, /page.js
//   GET /state                  the picture as JSON (cli/web_state.h), with the header
//                               `Authorization: Bearer TOKEN`
//
// The page has the token from behind the # of its address, which browsers send to nobody. A page of
// another site cannot ask for /state: it lacks the token, and a name that resolves to this host is
// refused, whatever it is (DNS rebinding), unless it is that of the loopback interface.
//
// How many connections there may be, and for how long, is what core/serve/http.h says.
#pragma once

#include <string>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/serve/http.h"
#include "core/serve/text_source.h"

namespace vrdma::cli::web {

// Answers one request. `state` and the token must outlive the answer.
void answer(const serve::HttpRequest& request, const std::string& token, serve::TextSource& state,
            const serve::HttpServer::Answer& answer);

// Forks the process, before this one has threads. Returns the socket to it, on which it asks as a
// serve::TextSource, when it has given up its privileges. It ends when that socket is closed.
[[nodiscard]] base::Result<base::Fd> start(serve::HttpServer::Listener listener,
                                           const std::string& token);

}  // namespace vrdma::cli::web
