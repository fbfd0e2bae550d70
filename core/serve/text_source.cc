#include "core/serve/text_source.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace vrdma::serve {

base::Result<std::unique_ptr<TextSource>> TextSource::start(base::EventLoop& loop, base::Fd other,
                                                            std::function<void()> ended) {
  std::unique_ptr<TextSource> source(new TextSource(std::move(other), std::move(ended)));
  auto watch =
      loop.watch(source->other_.get(), EPOLLIN, [raw = source.get()](uint32_t) { raw->receive(); });
  if (!watch) return base::pass(std::move(watch).error());
  source->watch_ = std::move(*watch);
  return source;
}

void TextSource::ask(Take take) {
  waiting_.push_back(std::move(take));
  if (waiting_.size() > 1) return;
  const char question = '?';
  // If the other process has ended, receive() learns it.
  (void)::send(other_.get(), &question, 1, MSG_NOSIGNAL);
}

void TextSource::receive() {
  std::array<char, 65536> part{};
  const ssize_t got = ::recv(other_.get(), part.data(), part.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    watch_.reset();
    return ended_();
  }
  text_.append(part.data(), static_cast<size_t>(got));
  Header header;
  if (text_.size() < sizeof header) return;
  std::memcpy(&header, text_.data(), sizeof header);
  if (text_.size() - sizeof header < header.size) return;
  const std::string text = std::exchange(text_, {}).substr(sizeof header);
  for (const auto& take : std::exchange(waiting_, {})) take(text);
}

}  // namespace vrdma::serve
