#include "vrdmad/worker/worker_thread.h"

#include <pthread.h>

#include <future>
#include <utility>

namespace vrdma::vrdmad {

base::Result<std::unique_ptr<WorkerThread>> WorkerThread::start(
    std::shared_ptr<Broker> broker, std::function<void(ToControl)> tell) {
  auto loop = base::EventLoop::create();
  if (!loop) return base::pass(std::move(loop).error(), "start a worker");
  std::unique_ptr<WorkerThread> thread(new WorkerThread(std::move(*loop)));
  thread->worker_ = std::make_unique<Worker>(*thread->loop_, std::move(broker), std::move(tell));
  thread->thread_ = std::thread([running = thread->loop_.get()] { running->run(); });
  ::pthread_setname_np(thread->thread_.native_handle(), "worker");
  return thread;
}

WorkerThread::~WorkerThread() {
  call([this] { worker_->end(); });
  call([] {});  // what that has posted is done, and keeps no vdevice
  loop_->stop();
  thread_.join();
  worker_.reset();
  // A thread that is in a program's memory for a session that is left will still post here.
  if (left_) (void)loop_.release();
}

void WorkerThread::call(const std::function<void()>& f) {
  std::promise<void> done;
  loop_->post([&] {
    f();
    done.set_value();
  });
  done.get_future().wait();
}

void WorkerThread::send(Parcel parcel) {
  loop_->post([this, sent = std::make_shared<Parcel>(std::move(parcel))] {
    worker_->take(std::move(*sent));
  });
}

void WorkerThread::leave() {
  call([this] { left_ = worker_->leave_sessions(); });
}

}  // namespace vrdma::vrdmad
