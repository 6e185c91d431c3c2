#include "server/rpc/control_thread.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/clock_system.h"
#include "spdlog/spdlog.h"

namespace ringkv {
namespace {

constexpr absl::Duration kLoadInterval = absl::Seconds(1);
constexpr absl::Duration kStallRetry = absl::Milliseconds(5);

void Log(const LogLine& line) {
  switch (line.level) {
    case LogLevel::kInfo:
      spdlog::info("{}", line.text);
      break;
    case LogLevel::kWarning:
      spdlog::warn("{}", line.text);
      break;
    case LogLevel::kError:
      spdlog::error("{}", line.text);
      break;
  }
}

}  // namespace

ControlThread::ControlThread(std::unique_ptr<Control> control, Engine& engine,
                             PeerNet& net, Hooks hooks)
    : control_(std::move(control)),
      turn_(*control_, engine),
      net_(net),
      hooks_(std::move(hooks)),
      id_(control_->id()),
      start_id_(control_->start_id()),
      // Everything must be heard; senders bound themselves (streams take one
      // frame at a time, admin calls are few).
      mailbox_(std::numeric_limits<size_t>::max(),
               std::numeric_limits<size_t>::max()) {
  // The first event of a run, whatever servers post before Start().
  Post(ControlStarted{});
}

ControlThread::~ControlThread() { Stop(); }

void ControlThread::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ControlThread::Stop() {
  stopping_ = true;
  mailbox_.Wake();
  if (thread_.joinable()) thread_.join();
}

void ControlThread::Call(AdminCall call, Instant deadline, AdminDone done) {
  mailbox_.Push(
      {AdminArrived{0, deadline, std::move(call)}, std::move(done), false});
}

void ControlThread::Synced(uint64_t sequence) {
  uint64_t before = synced_.load();
  while (before < sequence &&
         !synced_.compare_exchange_weak(before, sequence)) {
  }
  mailbox_.Wake();
}

ControlView ControlThread::View() const {
  const std::lock_guard lock(view_mutex_);
  return view_;
}

void ControlThread::Run() {
  std::vector<Item> items;
  std::vector<ControlEvent> events;
  while (!stopping_) {
    Instant until = std::min(control_->NextTimer(), load_due_);
    if (turn_.stalled()) until = std::min(until, SystemInstant() + kStallRetry);
    mailbox_.Take(items, until);
    const Time time = SystemTime();
    for (Item& item : items) {
      if (item.close_calls) {
        calls_closed_ = true;
        FailCalls();
        continue;
      }
      if (auto* admin = std::get_if<AdminArrived>(&item.event)) {
        admin->call = next_call_++;
        calls_.emplace(admin->call, std::move(item.done));
        if (calls_closed_) {
          FailCalls();
          continue;
        }
      }
      events.push_back(std::move(item.event));
    }
    items.clear();
    if (time.now >= load_due_) {
      load_due_ = time.now + kLoadInterval;
      events.push_back(hooks_.load());
      net_.Sweep();
    }
    if (control_->NextTimer() <= time.now) events.push_back(ControlTimer{});

    ControlEffects effects;
    const uint64_t synced = synced_.load();
    if (synced > synced_told_) {
      synced_told_ = synced;
      turn_.Synced(synced, time, effects);
    }
    if (const absl::Status status = turn_.Turn(events, time, effects);
        !status.ok()) {
      hooks_.stop({1, absl::StrCat("the disk failed: ",
                                   absl::string_view(status.message()))});
      break;
    }
    pulse_.Beat(time.now);
    HandOut(effects);
    if (turn_.wants_sync()) hooks_.wants_sync();
  }
  pulse_.End();
  mailbox_.Wake();
  mailbox_.Take(items, Instant{});
  for (Item& item : items) {
    if (item.done) calls_.emplace(next_call_++, std::move(item.done));
  }
  FailCalls();
}

void ControlThread::FailCalls() {
  for (auto& [call, done] : calls_) {
    AdminAnswer answer;
    answer.status = absl::UnavailableError("this node stops");
    done(std::move(answer));
  }
  calls_.clear();
}

void ControlThread::HandOut(ControlEffects& effects) {
  for (const LogLine& line : effects.log) Log(line);
  // Before the answers: who is told of a new ring finds it here.
  Publish(effects);
  if (effects.ring != nullptr) {
    const RingEpoch epoch = effects.ring->epoch();
    hooks_.adopt({effects.ring, control_->number()},
                 [this, epoch] { Post(EpochAdopted{epoch}); });
  }
  if (effects.begin_transfers != 0) {
    hooks_.begin_transfers(BeginTransfers{effects.begin_transfers});
  }
  if (effects.peers != nullptr) {
    hooks_.peers({effects.peers, effects.clock_ok, effects.checked});
  }
  for (HelloCall& hello : effects.hellos) net_.SayHello(std::move(hello));
  for (HelloAnswer& hello : effects.hello_answers) {
    net_.AnswerHello(std::move(hello));
  }
  for (LinkDial& dial : effects.dials) net_.Dial(std::move(dial));
  for (LinkAnswer& answer : effects.link_answers) {
    net_.AnswerLink(std::move(answer));
  }
  for (ControlOut& out : effects.messages) {
    net_.SendControl(out.link, std::move(out.message));
  }
  for (const LinkId link : effects.closes) net_.Close(link);
  for (AdminOut& out : effects.answers) {
    const auto found = calls_.find(out.call);
    if (found == calls_.end()) continue;
    const AdminDone done = std::move(found->second);
    calls_.erase(found);
    done(std::move(out.answer));
  }
  if (effects.stop.has_value()) hooks_.stop(*std::move(effects.stop));
}

void ControlThread::Publish(const ControlEffects& effects) {
  const size_t peers_alive = control_->peers_alive();
  bool changed = effects.ring != nullptr || effects.peers != nullptr ||
                 effects.addresses != nullptr;
  {
    const std::lock_guard lock(view_mutex_);
    changed = changed || view_.number != control_->number() ||
              view_.adopted_epoch != control_->adopted_epoch() ||
              view_.peers_alive != peers_alive;
    view_.number = control_->number();
    view_.ring = control_->ring();
    view_.adopted_epoch = control_->adopted_epoch();
    view_.peers_alive = peers_alive;
    view_.liveness = control_->liveness();
    if (effects.peers != nullptr) {
      view_.peers = effects.peers;
      view_.clock_ok = effects.clock_ok;
    }
    if (effects.addresses != nullptr) view_.addresses = effects.addresses;
  }
  if (changed) hooks_.changed();
}

}  // namespace ringkv
