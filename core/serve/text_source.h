// A text that another process makes whenever it is asked, for a server that may not read it itself:
//
//   this process --a byte--> the other
//                <--Header, text--
//
// The other process needs to read nothing but bytes, of which each is the same question. One
// question is under way at a time; whoever asks meanwhile shares its answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::serve {

class TextSource {
 public:
  struct Header {
    uint64_t size = 0;  // of the text that follows
  };
  using Take = std::function<void(const std::string& text)>;

  // `other`: a stream socket to the other process, which is believed. `ended` is called when that
  // process has closed it. `loop` must outlive the source.
  [[nodiscard]] static base::Result<std::unique_ptr<TextSource>> start(base::EventLoop& loop,
                                                                       base::Fd other,
                                                                       std::function<void()> ended);
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  // Calls `take` once, from the loop, unless the other process ends before.
  void ask(Take take);

 private:
  TextSource(base::Fd other, std::function<void()> ended)
      : other_(std::move(other)), ended_(std::move(ended)) {}
  void receive();

  const base::Fd other_;
  const std::function<void()> ended_;
  base::EventLoop::Watch watch_;
  std::vector<Take> waiting_;
  std::string text_;  // what has come of it, with its header
};

}  // namespace vrdma::serve
