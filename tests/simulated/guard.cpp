// What torch needs for tensors that report "cuda" on a machine without a GPU: a device guard, the hooks that its dispatcher
// calls, and DDP's timer. A CPU build has none of them; in a CUDA build these take precedence over the real ones.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

namespace {
using namespace c10;
constexpr DeviceType kind = DeviceType::CUDA;
thread_local DeviceIndex current = 0;

struct Guard final : impl::DeviceGuardImplInterface {
  DeviceType type() const override { return kind; }
  Device exchangeDevice(Device device) const override {
    Device before = getDevice();
    current = device.index();
    return before;
  }
  Device getDevice() const override { return Device(kind, current); }
  void setDevice(Device device) const override { current = device.index(); }
  void uncheckedSetDevice(Device device) const noexcept override { current = device.index(); }
  Stream getStream(Device device) const noexcept override { return Stream(Stream::DEFAULT, device); }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream getNewStream(Device device, int = 0) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const noexcept override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return 2; }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard); // the last one registered wins, so libtorch_cuda must be loaded before
} // namespace

namespace at {
struct CUDAHooks final : CUDAHooksInterface {
  CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  long versionRuntimeCuDNN() const override { return 0; }
  DeviceIndex deviceCount() const override { return 2; }
  DeviceIndex getCurrentDevice() const override { return current; }
  const Generator& getDefaultGenerator(DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};
// torch looks up this name once, at the first use: this library must be loaded before.
C10_REGISTER_CLASS_WITH_PRIORITY(CUDAHooksRegistry, CUDAHooks, c10::REGISTRY_PREFERRED, CUDAHooks)
} // namespace at

namespace c10d {
struct CUDATimer final : Timer {
  CUDATimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event, Event) override { return std::nullopt; }
};
C10_REGISTER_TYPED_CLASS_WITH_PRIORITY(TimerRegistry, c10::kCUDA, c10::REGISTRY_PREFERRED, CUDATimer)
} // namespace c10d
